// The policy of tiers: whether a segment runs uncompiled or compiled. It knows hashes and times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tiering/duel.h"
#include "tiering/samples.h"

namespace fuse::tiering {

enum class Setting : uint8_t { Auto, Compiled, Uncompiled };

// Who looks on learns what ran, and nothing is learned of how long that took: it takes longer. All
// is recorded for it, or runs in the tier that it has, without a trial.
enum class Watch : uint8_t { No, Recorded, AsItIs };

// Segments that begin with one very call: the streams that they turned out to be, and whether
// their executables are there.
struct Entry {
  enum class State : uint8_t { New, Pending, Ready };
  struct Stream {
    uint64_t hash;
    uint32_t times;
  };
  static constexpr size_t kStreams = 4;

  State state = State::New;
  std::vector<Stream> streams;
  uint32_t returning = 0; // segments in a row whose stream had come by before
  uint32_t fresh = 0; // recorded ones that had to be planned
  uint32_t runs = 0; // recorded ones that had not
  uint64_t calls = 0; // of the longest of late
  Nanoseconds spent = 0; // uncompiled, since one was last planned
  Samples lasted; // in its kind's present tier

  void saw(uint64_t hash, uint64_t count);
  // Whether what has been recorded comes by again.
  bool returns() const {
    return fresh <= kStreams || fresh <= runs / 4;
  }
};

// Segments whose first calls differ in sizes and numbers alone: they share a tier.
struct Kind {
  const void* name = nullptr; // of the first call's operator, for who asks
  Tier tier = Tier::Uncompiled;
  std::unordered_map<uint64_t, Entry> entries; // by the first call
  Samples lasted; // in the present tier, from start to next start
  Nanoseconds next_trial = 0;
  uint32_t ready = 0; // entries that are
  uint32_t tried = 0; // entries that were at the last trial
  uint32_t trials = 0;
  uint32_t kept = 0; // trials in a row that changed nothing
  Nanoseconds measured[2] = {0, 0}; // a round of its loop in each tier, at the last trial
  uint64_t segments[2] = {0, 0}; // that ran in each tier

  void become(Entry& entry, Entry::State state) {
    ready += static_cast<uint32_t>(state == Entry::State::Ready);
    ready -= static_cast<uint32_t>(entry.state == Entry::State::Ready);
    entry.state = state;
  }
  // What a segment of an entry takes in the present tier: others may be of other sizes.
  Nanoseconds usual(const Entry& entry) const {
    return (entry.lasted.enough() ? entry.lasted : lasted).typical();
  }
  void enter_tier(Tier tier);
};

// A segment, by what its kind and entry were found by.
struct Found {
  Kind* kind = nullptr; // null before the first, and after what is none of the policy's
  Entry* entry = nullptr;
  uint64_t kind_id = 0, first = 0, generation = 0;
};

// Where a queue is: the segment that it runs, or ran last.
struct Place : Found {
  Nanoseconds start = 0;
  Tier tier = Tier::Uncompiled; // that it runs in
  bool open = false; // has not ended yet
  uint64_t planned = 0; // calls of its that had to be planned
  bool measured = true;
  std::vector<Found> joined; // recorded into the same trace before it, that is not run yet
};

// Decides for each segment as it begins. Under the recorder's mutex; all times are the caller's.
//
// A stream is recorded, so that its executables are made, once what it spent uncompiled is
// `kWorth` times what recording it costs, which is measured (the ski rental rule: Karlin et al.,
// Competitive snoopy caching, 1988). When they are there, a trial compares the tiers by the speed
// of the loop that the segment is part of; the faster one stays, and is tried ever more seldom.
class Policy {
 public:
  explicit Policy(Nanoseconds now) : born_(now) {}

  void set(Setting setting);
  // From now on; places begin anew.
  void watch(Watch watch);
  Setting setting() const {
    return setting_;
  }
  Watch watch() const {
    return watch_;
  }
  // A segment begins on a queue: its first call without sizes and numbers, and with them.
  // Compiled also where it is to be recorded for the first time.
  Tier begin(Place& place, uint64_t kind, uint64_t first, Nanoseconds now);
  // What ran uncompiled has ended: a hash of its calls, and how many.
  void ends(Place& place, uint64_t stream, uint64_t calls);
  // What was recorded has been handed on, so many calls; `planned` if that was its first time,
  // `pending` if its executables are not there yet. The segments that it was.
  std::vector<Found> hands_on(Place& place, bool planned, bool pending, uint64_t calls);
  // The executables of an entry that was pending are there; of no effect if it was forgotten.
  void is_ready(uint64_t kind, uint64_t first);
  // Something else than its calls happens before the next segment begins, such as what compiles a
  // graph: its time tells nothing.
  static void passes(Place& place) {
    place.measured = false;
  }
  // What follows on the queue is none of the policy's, such as a graph that the user captures.
  void leaves(Place& place);
  // Forgets all kinds.
  void forget();
  const std::unordered_map<uint64_t, Kind>& kinds() const {
    return kinds_;
  }
  // What recording has to save before it is tried, for an entry.
  Nanoseconds price(const Kind& kind, const Entry& entry) const;
  bool tries() const {
    return trial_.queue != nullptr;
  }
  bool tries(const Kind& kind) const {
    return tries() && trial_.kind == &kind;
  }

 private:
  static constexpr size_t kMostKinds = 4096, kMostEntries = 256;
  static constexpr uint32_t kReturns =
      2; // times that a stream comes by again before it is recorded
  static constexpr int64_t kWorth = 16; // recording takes 6 % of the time until then
  static constexpr int64_t kShare = 8; // and at most one part of all time
  static constexpr int64_t kTrialShare = 50; // so do trials of what turned out slower
  static constexpr int64_t kRest = 64; // what a trial took, times, till the next one
  static constexpr uint32_t kMostKept = 10; // doublings of that
  static constexpr double kFaster = 0.96; // of the time, before the tier changes
  static constexpr Nanoseconds kFirstGuess = 300'000; // to record a call, until one has been
  static constexpr Nanoseconds kTurn = 4'000'000; // least that is compared: above a clock's noise
  static constexpr Nanoseconds kPause = 200'000'000; // a trial without its kind is over

  struct Trial {
    const Place* queue = nullptr; // null while there is none
    Kind* kind = nullptr;
    Nanoseconds began = 0, last = 0;
    Duel duel;
  };

  bool is_current(const Found& found) const {
    return found.kind != nullptr && found.generation == generation_;
  }
  // What is recorded of it goes on as a part of the trace that the next segment is in.
  static void joins(Place& place);
  void enter(Place& place, uint64_t kind, uint64_t first, Nanoseconds now);
  Tier choose(Place& place, Nanoseconds now);
  Tier decide(Place& place, Nanoseconds now);
  static Tier settled(const Place& place);
  void lasts(Place& place, Nanoseconds now);
  void learns_cost(const Place& place, Nanoseconds took);
  bool pays_to_record(const Kind& kind, const Entry& entry, Nanoseconds now) const;
  bool begins_trial(const Place& place, Nanoseconds now);
  void ends_trial(Nanoseconds now);

  std::unordered_map<uint64_t, Kind> kinds_;
  Setting setting_ = Setting::Compiled;
  Watch watch_ = Watch::No;
  Trial trial_; // one at a time: what feeds what is told apart
  Nanoseconds born_;
  Nanoseconds recording_ = 0; // spent on it
  Nanoseconds calm_ = 0; // till then a loop's times are learned anew: a part of it changed its tier
  Nanoseconds lost_ = 0; // by trials of what turned out slower
  Nanoseconds a_call_ = kFirstGuess;
  uint64_t generation_ = 1; // of what places point to
};

} // namespace fuse::tiering
