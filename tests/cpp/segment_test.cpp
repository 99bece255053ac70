#include "tiering/segment.h"

#include <initializer_list>

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
  CHECK(stream_of({1, 2, 3}) == stream_of({1, 2, 3}));
  CHECK(stream_of({1, 2, 3}) != stream_of({1, 3, 2}));
  CHECK(stream_of({1, 2}) != stream_of({1, 2, 2}));
}

TEST(a_segment_says_when_it_has_too_many_calls) {
  Segment segment;
  segment.begin(2);
  CHECK(segment.add(1));
  CHECK(segment.add(2));
  CHECK(!segment.add(3));
  CHECK(segment.calls() == 3);
}

TEST(a_first_call_that_keeps_coming_is_a_loop) {
  Segment segment;
  segment.begin(kMany);
  for (int round = 0; round < 8; ++round) {
    segment.add(1);
    segment.add(2);
    CHECK(!segment.is_loop());
  }
  segment.add(1);
  CHECK(segment.is_loop());
}

TEST(a_segment_that_begins_again_has_forgotten_the_last) {
  Segment segment;
  segment.begin(kMany);
  for (int round = 0; round < 20; ++round) {
    segment.add(1);
  }
  segment.end();
  segment.begin(kMany);
  CHECK(segment.calls() == 0);
  CHECK(!segment.is_loop());
  segment.add(1);
  segment.add(2);
  CHECK(segment.stream() == stream_of({1, 2}));
}

} // namespace

} // namespace fuse::tiering
