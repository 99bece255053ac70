#include "tiering/duel.h"

#include <cmath>

#include "check.h"

namespace fuse::tiering {

namespace {

constexpr Nanoseconds kUsual = 100;

// Rounds of a loop of one segment until the duel is over, or no more than a hundred; how many.
int fight(Duel& duel, Nanoseconds uncompiled, Nanoseconds compiled) {
  int rounds = 0;
  while (!duel.over() && rounds < 100) {
    duel.add(duel.tier() == Tier::Compiled ? compiled : uncompiled, kUsual, true);
    ++rounds;
  }
  return rounds;
}

bool near(double found, double expected) {
  return std::abs(found - expected) < 1e-9;
}

TEST(the_other_tier_has_the_first_turn) {
  const Duel duel(Tier::Compiled, 0);
  CHECK(duel.tier() == Tier::Uncompiled);
  CHECK(duel.other() == Tier::Uncompiled);
  CHECK(duel.present() == Tier::Compiled);
}

TEST(two_pairs_of_turns_that_agree_are_enough) {
  Duel slower(Tier::Compiled, 0);
  CHECK(fight(slower, 200, 100) == 16); // four rounds a turn, the first of which does not count
  CHECK(near(slower.ratio(), 2.0));
  Duel faster(Tier::Uncompiled, 0);
  CHECK(fight(faster, 100, 50) == 16);
  CHECK(near(faster.ratio(), 0.5));
}

TEST(what_is_close_takes_three_pairs) {
  Duel duel(Tier::Compiled, 0);
  CHECK(fight(duel, 110, 100) == 24);
  CHECK(near(duel.ratio(), 1.1));
}

TEST(a_turn_lasts_as_long_as_a_clock_can_tell) {
  Duel duel(Tier::Compiled, 10 * kUsual);
  CHECK(fight(duel, 200, 100) == 2 * (1 + 5) + 2 * (1 + 10));
}

TEST(a_pause_does_not_decide_a_duel) {
  Duel duel(Tier::Compiled, 0);
  duel.add(kUsual, kUsual, true);
  duel.add(1'000'000'000, kUsual, true);
  fight(duel, kUsual, kUsual);
  CHECK(duel.over());
  CHECK(near(duel.ratio(), 1.0));
}

TEST(a_round_of_the_loop_is_told_of_each_tier) {
  Duel duel(Tier::Compiled, 0);
  fight(duel, 200, 100);
  CHECK(duel.round(true) == 200);
  CHECK(duel.round(false) == 100);
}

TEST(what_a_duel_has_lost_is_never_less_than_nothing) {
  Duel slower(Tier::Compiled, 0);
  fight(slower, 200, 100);
  CHECK(slower.lost() == 8 * (200 - kUsual));
  Duel faster(Tier::Compiled, 0);
  fight(faster, 50, 100);
  CHECK(faster.lost() == 0);
}

TEST(segments_of_another_loop_do_not_count) {
  Duel duel(Tier::Compiled, 0);
  duel.add(kUsual, kUsual, true);
  for (int other = 0; other < 1'000; ++other) {
    duel.add(2 * kUsual, kUsual, false); // some may be of the loop
  }
  fight(duel, kUsual, kUsual);
  CHECK(duel.lost() <= 64 * kUsual);
}

TEST(a_duel_that_is_over_takes_no_more) {
  Duel duel(Tier::Compiled, 0);
  fight(duel, 200, 100);
  const Nanoseconds lost = duel.lost();
  duel.add(1'000'000, kUsual, true);
  CHECK(duel.lost() == lost);
  CHECK(near(duel.ratio(), 2.0));
}

} // namespace

} // namespace fuse::tiering
