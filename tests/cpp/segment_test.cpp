#include "tiering/segment.h"

#include <initializer_list>
#include <vector>

#include "check.h"

namespace fuse::tiering {

namespace {

constexpr size_t kMany = 1'000;

uint64_t stream_of(std::initializer_list<uint64_t> calls) {
  Segment segment;
  segment.begin(kMany);
  for (const uint64_t call : calls) {
    segment.add(call);
  }
  return segment.stream();
}

TEST(a_segment_goes_on_until_it_is_ended) {
  Segment segment;
  CHECK(!segment.goes_on());
  CHECK(!segment.end());
  segment.begin(kMany);
  CHECK(segment.goes_on());
  CHECK(segment.end());
  CHECK(!segment.goes_on());
}

TEST(equal_calls_make_equal_streams) {
  CHECK(stream_of({10, 20, 30}) == stream_of({10, 20, 30}));
  CHECK(stream_of({10, 20, 30}) != stream_of({10, 30, 20}));
  CHECK(stream_of({10, 20}) != stream_of({10, 20, 20}));
}

TEST(a_segment_says_when_it_has_too_many_calls) {
  Segment segment;
  segment.begin(2);
  CHECK(segment.add(10));
  CHECK(segment.add(20));
  CHECK(!segment.add(30));
  CHECK(segment.calls() == 2);
  CHECK(segment.again() == 0);
}

// Runs the loop's calls one after another, a segment after another where one ends; what the
// segments were.
struct Pieces {
  std::vector<uint64_t> streams, lengths, first;
};

Pieces pieces(Segment& segment, const std::vector<uint64_t>& loop, size_t most, size_t calls) {
  Pieces found;
  segment.begin(most);
  for (size_t at = 0; at < calls; ++at) {
    const uint64_t call = loop[at % loop.size()];
    const bool whole = (call & 1) != 0;
    if (!segment.add(call, whole)) {
      segment.end();
      found.streams.push_back(segment.stream());
      found.lengths.push_back(segment.calls());
      segment.begin(most);
      found.first.push_back(call); // it begins the next one without being added
    }
  }
  return found;
}

TEST(a_loop_without_an_end_is_cut_into_equal_pieces) {
  for (const size_t period : {1, 2, 7, 100, 511, 2'000, 4'000}) {
    std::vector<uint64_t> loop;
    for (size_t at = 0; at < period; ++at) {
      loop.push_back(10 + 2 * at);
    }
    Segment segment;
    const Pieces found = pieces(segment, loop, 16'384, 200'000);
    CHECK(found.streams.size() > 20);
    CHECK(found.lengths[0] >= 16'384 && found.lengths[0] <= 16'384 + period);
    for (size_t at = 1; at < found.streams.size(); ++at) {
      CHECK(found.streams[at] == found.streams[1]);
      CHECK(found.first[at] == found.first[0]);
      CHECK((found.lengths[at] + 1) % period == 0);
      CHECK(found.lengths[at] + 1 < 512 + period);
    }
  }
}

TEST(a_piece_begins_with_the_rarest_call_that_is_one) {
  Segment segment;
  const Pieces found = pieces(segment, {20, 20, 30, 30, 41, 20, 50, 60}, 1'000, 5'000);
  for (const uint64_t first : found.first) {
    CHECK(first == 50);
  }
  CHECK(segment.again() == 63);
  Segment other;
  CHECK(pieces(other, {21, 21, 31, 21}, 1'000, 5'000).first.back() == 31);
}

TEST(a_segment_may_be_as_long_as_one_likes) {
  Segment segment;
  CHECK(pieces(segment, {20, 30, 40}, SIZE_MAX, 50'000).lengths.empty());
  CHECK(segment.calls() == 50'000);
  segment.end();
  const Pieces found = pieces(segment, {20, 30, 40}, 100'000, 300'000);
  CHECK(found.lengths[0] >= 100'000 && found.lengths.back() == 512);
}

TEST(what_does_not_repeat_is_no_loop) {
  Segment segment;
  std::vector<uint64_t> calls;
  for (uint64_t at = 0; at < 5'000; ++at) {
    calls.push_back(at * at * 6);
  }
  const Pieces found = pieces(segment, calls, 1'000, 5'000);
  CHECK(found.lengths.size() == 4);
  CHECK(found.lengths[3] == 1'000);
  CHECK(segment.again() == 0);
}

TEST(a_loop_is_forgotten_where_it_comes_to_an_end) {
  Segment segment;
  pieces(segment, {20, 30}, 1'000, 5'000);
  CHECK(segment.again() != 0);
  segment.forget_loop();
  CHECK(segment.again() == 0);
  CHECK(pieces(segment, {20, 30}, 1'000, 5'000).lengths[0] >= 1'000);
}

TEST(a_loop_that_changes_is_looked_at_anew) {
  Segment segment;
  pieces(segment, {20, 30}, 1'000, 5'000);
  const Pieces found = pieces(segment, {40, 50, 60}, 1'000, 9'000);
  CHECK(found.lengths[0] >= 1'000);
  CHECK(found.lengths.back() < 600);
}

TEST(a_segment_that_begins_again_has_forgotten_the_last) {
  Segment segment;
  segment.begin(kMany);
  for (int round = 0; round < 20; ++round) {
    segment.add(10);
  }
  segment.end();
  segment.begin(kMany);
  CHECK(segment.calls() == 0);
  segment.add(10);
  segment.add(20);
  CHECK(segment.stream() == stream_of({10, 20}));
}

} // namespace

} // namespace fuse::tiering
