// The duel of two tiers: turns of each in a trial, compared by speed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "tiering/samples.h"

namespace fuse::tiering {

enum class Tier : uint8_t { Uncompiled, Compiled };

// Two tiers of one kind of segment in turns, by the speed of the whole loop that it is part of:
// each turn sums what all segments of the loop took, over what they usually take. What varies from
// one round of the loop to the next varies in both.
class Duel {
 public:
  Duel() = default;
  Duel(Tier present, Nanoseconds least) : present_(present), least_(least) {}

  // The tier of this turn: the other one first.
  Tier tier() const {
    return turn_ % 2 == 0 ? other() : present_;
  }
  Tier other() const {
    return present_ == Tier::Compiled ? Tier::Uncompiled : Tier::Compiled;
  }
  Tier present() const {
    return present_;
  }
  // A segment of the loop took so long, and usually takes `usual`; `own` if it is of the kind that
  // is tried. The first round of a turn comes from another tier, and does not count.
  void add(Nanoseconds took, Nanoseconds usual, bool own) {
    if (over()) {
      return;
    }
    Turn& turn = turns_[turn_];
    apart_ = own ? 0 : apart_ + 1;
    if (turn_ % 2 == 0 && apart_ <= kApart) {
      lost_ += std::min(took, kMostLost * usual) - usual;
    }
    if (turn.rounds > 0 && apart_ <= kApart) {
      turn.took += std::min(took, 8 * usual);
      turn.usual += usual;
    }
    turn.rounds += own;
    if (turn.rounds > kRounds && turn.took >= least_) {
      ++turn_;
    }
  }
  // Also after two pairs of turns that leave nothing to ask; one may have met a pause.
  bool over() const {
    return turn_ == kTurns ||
        (turn_ == 4 &&
         (std::min(pair(0), pair(1)) > kPlain || std::max(pair(0), pair(1)) < 1 / kPlain));
  }
  // How long the other tier takes for what takes one in the present one: of each pair of turns,
  // the median.
  double ratio() const {
    if (turn_ < kTurns) {
      return (pair(0) + pair(1)) / 2;
    }
    std::array<double, kTurns / 2> found{pair(0), pair(1), pair(2)};
    std::sort(found.begin(), found.end());
    return found[found.size() / 2];
  }
  // A round of the loop in either tier.
  Nanoseconds round(bool other) const {
    Nanoseconds took = 0, rounds = 0;
    for (size_t at = other ? 0 : 1; at < turn_; at += 2) {
      took += turns_[at].took;
      rounds += turns_[at].rounds - 1;
    }
    return took / std::max<Nanoseconds>(rounds, 1);
  }
  // What all turns of the other tier took longer, their first rounds too. What is compared is
  // bounded more tightly, for pauses.
  Nanoseconds lost() const {
    return std::max<Nanoseconds>(lost_, 0);
  }

 private:
  static constexpr size_t kTurns = 6;
  static constexpr int64_t kRounds = 3; // that count, at least, in a turn
  static constexpr double kPlain = 1.4;
  static constexpr int64_t kMostLost = 256; // times the usual: more is a pause
  static constexpr uint32_t kApart = 64; // segments after the last of the kind: another loop's

  struct Turn {
    Nanoseconds took = 0, usual = 0;
    int64_t rounds = 0;
    double speed() const {
      return static_cast<double>(took) / static_cast<double>(std::max<Nanoseconds>(usual, 1));
    }
  };

  double pair(size_t at) const {
    return turns_[2 * at].speed() / turns_[2 * at + 1].speed();
  }

  Tier present_ = Tier::Uncompiled;
  Nanoseconds least_ = 0; // a turn takes at least
  std::array<Turn, kTurns> turns_{};
  size_t turn_ = 0;
  Nanoseconds lost_ = 0;
  uint32_t apart_ = 0;
};

} // namespace fuse::tiering
