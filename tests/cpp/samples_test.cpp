#include "tiering/samples.h"

#include <initializer_list>

#include "check.h"

namespace fuse::tiering {

namespace {

Samples of(std::initializer_list<Nanoseconds> times) {
  Samples found;
  for (const Nanoseconds time : times) {
    found.add(time);
  }
  return found;
}

TEST(three_samples_are_enough) {
  CHECK(!Samples().enough());
  CHECK(!of({5, 5}).enough());
  CHECK(of({5, 5, 5}).enough());
}

TEST(samples_are_typically_their_mean) {
  CHECK(Samples().typical() == 0);
  CHECK(of({7}).typical() == 7);
  CHECK(of({10, 20, 30}).typical() == 20);
}

TEST(a_pause_among_samples_counts_as_four_medians) {
  CHECK(of({100, 100, 100, 1'000'000}).typical() == (3 * 100 + 400) / 4);
  CHECK(of({100, 100, 100, 350}).typical() == (3 * 100 + 350) / 4);
}

TEST(only_the_last_eight_samples_count) {
  CHECK(of({900, 900, 1, 1, 1, 1, 1, 1, 1, 1}).typical() == 1);
}

TEST(cleared_samples_begin_anew) {
  Samples found = of({900, 900, 900, 900});
  found.clear();
  CHECK(!found.enough());
  CHECK(found.typical() == 0);
  found.add(3);
  CHECK(found.typical() == 3);
}

} // namespace

} // namespace fuse::tiering
