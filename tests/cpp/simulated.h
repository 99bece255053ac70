// Programs whose segments take the time that a test says, and the policy that decides for them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "tiering/policy.h"

namespace simulated {

using fuse::tiering::Entry;
using fuse::tiering::Kind;
using fuse::tiering::Nanoseconds;
using fuse::tiering::Place;
using fuse::tiering::Policy;
using fuse::tiering::Setting;
using fuse::tiering::Tier;

inline constexpr Nanoseconds kMicrosecond = 1'000, kMillisecond = 1'000'000,
                             kSecond = 1'000'000'000;

// What a program calls from one cut to the next. Segments of one kind and first call, whose
// streams differ, begin alike and go on differently.
struct Segment {
  uint64_t kind = 1, first = 1, stream = 1, calls = 20;
  Nanoseconds uncompiled = 100 * kMicrosecond, compiled = 100 * kMicrosecond;
};

// A program on one thread, by a clock of its own.
class Program {
 public:
  Nanoseconds record_a_call = 200 * kMicrosecond; // planning included
  Nanoseconds compile = 50 * kMillisecond; // in the background, from when it is recorded
  Nanoseconds first_run = 0; // of an executable: what it takes longer
  double noise = 0; // of each segment's time: its standard deviation

  Program() : policy_(0) {
    policy_.set(Setting::Auto);
  }
  // Runs one segment; the tier that it ran in.
  Tier run(const Segment& segment) {
    arrive();
    const Tier tier = policy_.begin(place_, segment.kind, segment.first, now_);
    if (tier == Tier::Uncompiled) {
      pass(segment.uncompiled);
      policy_.ends(place_, segment.stream, segment.calls);
    } else {
      record(segment);
    }
    switches_ += static_cast<uint64_t>(tier != last_[segment.kind]);
    last_[segment.kind] = tier;
    return tier;
  }
  void run(const Segment& segment, int64_t times) {
    for (int64_t at = 0; at < times; ++at) {
      run(segment);
    }
  }
  // Until a trial has been of the kind; false if there is none within so many segments.
  bool run_until_tried(const Segment& segment, int64_t most = 1'000'000) {
    while (trials(segment.kind) == 0 && most-- > 0) {
      run(segment);
    }
    return trials(segment.kind) > 0;
  }
  Nanoseconds now() const {
    return now_;
  }
  // Segments that ran in another tier than the one before of their kind.
  uint64_t switches() const {
    return switches_;
  }
  uint64_t plans() const {
    return plans_;
  }
  Policy& policy() {
    return policy_;
  }
  Place& place() {
    return place_;
  }
  uint32_t trials(uint64_t kind) const {
    const auto found = policy_.kinds().find(kind);
    return found == policy_.kinds().end() ? 0 : found->second.trials;
  }
  Tier tier(uint64_t kind) const {
    return policy_.kinds().at(kind).tier;
  }

 private:
  void record(const Segment& segment) {
    const bool planned = ready_.find({segment.first, segment.stream}) == ready_.end();
    if (planned) {
      ++plans_;
      now_ += record_a_call * static_cast<Nanoseconds>(segment.calls);
      const Nanoseconds ready = compile < 0 ? INT64_MAX : now_ + compile;
      ready_[{segment.first, segment.stream}] = ready;
      pending_.emplace(ready, std::pair(segment.kind, segment.first));
    }
    const bool pending = ready_[{segment.first, segment.stream}] > now_;
    pass(pending ? segment.uncompiled : segment.compiled);
    if (!pending && !std::exchange(ran_[{segment.first, segment.stream}], true)) {
      now_ += first_run;
    }
    policy_.hands_on(place_, planned, pending, segment.calls);
  }
  // Executables that are there by now.
  void arrive() {
    while (!pending_.empty() && pending_.begin()->first <= now_) {
      policy_.is_ready(pending_.begin()->second.first, pending_.begin()->second.second);
      pending_.erase(pending_.begin());
    }
  }
  void pass(Nanoseconds time) {
    const double factor = noise == 0 ? 1 : std::max(0.1, 1 + noise * normal_(random_));
    now_ += static_cast<Nanoseconds>(static_cast<double>(time) * factor);
  }

  Policy policy_;
  Place place_;
  Nanoseconds now_ = 0;
  std::map<std::pair<uint64_t, uint64_t>, Nanoseconds> ready_; // first call and stream: from when
  std::multimap<Nanoseconds, std::pair<uint64_t, uint64_t>> pending_;
  std::map<std::pair<uint64_t, uint64_t>, bool> ran_; // compiled
  std::map<uint64_t, Tier> last_;
  uint64_t switches_ = 0, plans_ = 0;
  std::mt19937_64 random_{7};
  std::normal_distribution<double> normal_;
};

} // namespace simulated
