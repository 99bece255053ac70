#include "tiering/policy.h"

#include <algorithm>
#include <utility>

namespace fuse::tiering {

void Entry::saw(uint64_t hash, uint64_t count) {
  calls = std::max(calls / 2, count); // a loop's first piece may be its longest by far
  auto found = std::find_if(
      streams.begin(), streams.end(), [hash](const Stream& one) { return one.hash == hash; });
  if (found != streams.end()) {
    ++found->times;
    ++returning;
    return;
  }
  returning = 0;
  if (streams.size() < kStreams) {
    streams.push_back({hash, 1});
    return;
  }
  *std::min_element(streams.begin(), streams.end(), [](const Stream& one, const Stream& other) {
    return one.times < other.times;
  }) = {hash, 1};
}

void Kind::enter_tier(Tier other) {
  tier = other;
  lasted.clear();
  for (auto& [first, entry] : entries) {
    entry.lasted.clear();
  }
}

void Policy::set(Setting setting) {
  setting_ = setting;
  trial_ = {};
}

void Policy::watch(Watch watch) {
  watch_ = watch;
  trial_ = {};
}

void Policy::forget() {
  kinds_.clear();
  ++generation_;
  trial_ = {};
}

void Policy::joins(Place& place) {
  if (place.tier == Tier::Compiled && std::exchange(place.open, false)) {
    place.joined.push_back(place);
  }
}

void Policy::leaves(Place& place) {
  joins(place);
  place.kind = nullptr;
  if (trial_.queue == &place) {
    trial_ = {};
  }
}

Tier Policy::begin(Place& place, uint64_t kind, uint64_t first, Nanoseconds now) {
  if (watch_ == Watch::No) {
    lasts(place, now);
  }
  joins(place);
  enter(place, kind, first, now);
  place.tier = choose(place, now);
  ++place.kind->segments[static_cast<size_t>(place.tier)];
  return place.tier;
}

void Policy::enter(Place& place, uint64_t id, uint64_t first, Nanoseconds now) {
  if (kinds_.size() >= kMostKinds && !kinds_.contains(id)) {
    forget();
  }
  Kind& kind = kinds_[id];
  if (kind.entries.size() >= kMostEntries && !kind.entries.contains(first)) {
    kind.entries.clear();
    kind.ready = kind.tried = 0;
    ++generation_;
    trial_ = {};
  }
  place.kind = &kind;
  place.entry = &kind.entries[first];
  place.kind_id = id;
  place.first = first;
  place.generation = generation_;
  place.start = now;
  place.open = true;
  place.planned = 0;
  place.measured = true;
}

Tier Policy::choose(Place& place, Nanoseconds now) {
  if (setting_ == Setting::Compiled || watch_ == Watch::Recorded) {
    return Tier::Compiled;
  }
  if (setting_ == Setting::Uncompiled) {
    return Tier::Uncompiled;
  }
  return watch_ == Watch::AsItIs ? settled(place) : decide(place, now);
}

Tier Policy::settled(const Place& place) {
  return place.entry->state == Entry::State::Ready ? place.kind->tier : Tier::Uncompiled;
}

Tier Policy::decide(Place& place, Nanoseconds now) {
  Kind& kind = *place.kind;
  const Entry& entry = *place.entry;
  if (trial_.queue != nullptr &&
      now - trial_.last > std::max(kPause, 32 * trial_.kind->lasted.typical())) {
    trial_ = {};
  }
  if (entry.state != Entry::State::Ready) {
    return pays_to_record(kind, entry, now) ? Tier::Compiled : Tier::Uncompiled;
  }
  const bool tried = trial_.queue == &place && trial_.kind == &kind;
  return tried || begins_trial(place, now) ? trial_.duel.tier() : kind.tier;
}

// An executable's first run takes longer: its code is read, its memory is new.
static bool is_first_run(const Place& place) {
  return place.tier == Tier::Compiled && place.entry->runs == 1;
}

void Policy::lasts(Place& place, Nanoseconds now) {
  if (!is_current(place)) {
    return;
  }
  Kind& kind = *place.kind;
  const Nanoseconds took = now - place.start;
  if (!place.measured) {
    return;
  }
  if (place.planned != 0) {
    learns_cost(place, took);
    return;
  }
  if (trial_.queue == &place) {
    const bool own = trial_.kind == &kind && place.entry->state == Entry::State::Ready;
    trial_.last = own ? now : trial_.last;
    if (kind.lasted.enough() && !is_first_run(place)) {
      trial_.duel.add(took, kind.usual(*place.entry), own);
    }
    if (trial_.duel.over()) {
      ends_trial(now);
    }
  } else if (place.tier == kind.tier) {
    kind.lasted.add(took);
    place.entry->lasted.add(took);
  }
  if (place.tier == Tier::Uncompiled) {
    place.entry->spent += took;
  }
}

void Policy::learns_cost(const Place& place, Nanoseconds took) {
  const Nanoseconds cost = std::max<Nanoseconds>(took - place.kind->lasted.typical(), 0);
  recording_ += cost;
  a_call_ = (a_call_ + cost / static_cast<Nanoseconds>(place.planned)) / 2;
}

Nanoseconds Policy::price(const Kind& kind, const Entry& entry) const {
  // Where sizes of this kind are compiled already, others are expected to pay: a smaller last
  // batch.
  const int64_t worth = kind.tier == Tier::Compiled ? 0 : kWorth;
  return worth * a_call_ * static_cast<Nanoseconds>(entry.calls);
}

bool Policy::pays_to_record(const Kind& kind, const Entry& entry, Nanoseconds now) const {
  if (entry.state == Entry::State::Pending || trial_.queue != nullptr || !entry.returns() ||
      entry.returning < kReturns) {
    return false;
  }
  const Nanoseconds cost = a_call_ * static_cast<Nanoseconds>(entry.calls);
  return entry.spent >= price(kind, entry) && recording_ + cost <= (now - born_) / kShare;
}

void Policy::ends(Place& place, uint64_t stream, uint64_t calls) {
  if (is_current(place) && std::exchange(place.open, false)) {
    place.entry->saw(stream, calls);
  }
}

std::vector<Found> Policy::hands_on(Place& place, bool planned, bool pending, uint64_t calls) {
  const bool own = place.tier == Tier::Compiled && place.open;
  joins(place);
  std::vector<Found> handed = std::exchange(place.joined, {});
  if (planned && own) {
    place.planned = calls;
  } else if (planned) {
    passes(place);
  }
  std::erase_if(handed, [this](const Found& found) { return !is_current(found); });
  for (const Found& found : handed) {
    Entry& entry = *found.entry;
    entry.calls = std::max(entry.calls, calls);
    found.kind->become(entry, pending ? Entry::State::Pending : Entry::State::Ready);
    if (!planned) {
      ++entry.runs;
      continue;
    }
    ++entry.fresh;
    entry.spent = 0;
    if (!entry.returns()) {
      found.kind->become(entry, Entry::State::New);
    }
    if (trial_.queue == &place) {
      trial_ = {}; // begun anew when its executables are there
    }
  }
  return handed;
}

void Policy::is_ready(uint64_t kind, uint64_t first) {
  auto found = kinds_.find(kind);
  if (found == kinds_.end()) {
    return;
  }
  auto entry = found->second.entries.find(first);
  if (entry != found->second.entries.end() && entry->second.state == Entry::State::Pending) {
    found->second.become(entry->second, Entry::State::Ready);
  }
}

bool Policy::begins_trial(const Place& place, Nanoseconds now) {
  Kind& kind = *place.kind;
  // What was tried when half as many sizes were compiled told of those.
  const bool due = now >= kind.next_trial || kind.ready >= 2 * kind.tried;
  if (trial_.queue != nullptr || !due || now < calm_ || !kind.lasted.enough() ||
      lost_ > (now - born_) / kTrialShare) {
    return false;
  }
  trial_ = {&place, &kind, now, now, Duel(kind.tier, kTurn)};
  return true;
}

void Policy::ends_trial(Nanoseconds now) {
  Kind& kind = *trial_.kind;
  const Duel& duel = trial_.duel;
  ++kind.trials;
  kind.tried = kind.ready;
  kind.measured[static_cast<size_t>(duel.present())] = duel.round(false);
  kind.measured[static_cast<size_t>(duel.other())] = duel.round(true);
  if (duel.ratio() < kFaster) {
    kind.enter_tier(duel.other());
    kind.kept = 0;
    calm_ = now + (now - trial_.began);
    for (auto& [id, other] : kinds_) {
      other.next_trial = 0; // what it was tried in was another loop
    }
  } else {
    kind.kept = std::min(kind.kept + 1, kMostKept);
    lost_ += duel.lost();
  }
  kind.next_trial = now + ((kRest * (now - trial_.began)) << kind.kept);
  trial_ = {};
}

} // namespace fuse::tiering
