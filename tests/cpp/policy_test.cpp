// The policy of tiers by itself: programs with a clock of their own, and what it decides for them.
#include <algorithm>
#include <map>
#include <vector>

#include "check.h"
#include "simulated.h"

namespace simulated {

namespace {

using check::at_most;

Segment segment(Nanoseconds uncompiled, Nanoseconds compiled) {
  Segment found;
  found.uncompiled = uncompiled * kMicrosecond;
  found.compiled = compiled * kMicrosecond;
  return found;
}

// What `times` segments take longer than in the faster tier, of what they take there.
double lost(Program& program, const Segment& one, int64_t times) {
  const Nanoseconds before = program.now();
  program.run(one, times);
  const auto best = static_cast<double>(std::min(one.uncompiled, one.compiled) * times);
  return static_cast<double>(program.now() - before) / best - 1;
}

TEST(a_faster_compiled_tier_is_taken) {
  for (const Nanoseconds uncompiled : {50, 300, 20'000}) {
    Program program;
    const Segment one = segment(uncompiled, uncompiled / 2);
    CHECK(program.run_until_tried(one));
    CHECK(program.tier(1) == Tier::Compiled);
    CHECK(program.plans() == 1);
    const double loss = lost(program, one, 100'000);
    at_most("the loss", loss, 0.02);
  }
}

TEST(a_slower_compiled_tier_is_left) {
  for (const double slower : {1.1, 1.5, 4.0, 50.0}) {
    Program program;
    const Segment one = segment(200, static_cast<Nanoseconds>(200 * slower));
    CHECK(program.run_until_tried(one));
    CHECK(program.tier(1) == Tier::Uncompiled);
    const double loss = lost(program, one, 100'000);
    at_most("the loss", loss, 0.02);
  }
}

TEST(equal_tiers_cost_next_to_nothing) {
  for (const double noise : {0.0, 0.05}) {
    Program program;
    program.noise = noise;
    const Segment one = segment(200, 200);
    CHECK(program.run_until_tried(one));
    const double loss = lost(program, one, 100'000);
    at_most("the loss", loss, 0.02);
  }
}

double share_of_recording(const Program& program, uint64_t calls) {
  const auto recording = static_cast<double>(
      program.record_a_call * static_cast<Nanoseconds>(program.plans() * calls));
  return recording / static_cast<double>(program.now());
}

// Sizes of a kind that is compiled are recorded when they come back, and so long as that is an
// eighth of the time.
TEST(recording_takes_a_part_of_the_time) {
  Program program;
  Segment one = segment(300, 100);
  CHECK(program.run_until_tried(one));
  program.record_a_call = 3 * kMillisecond;
  for (uint64_t stream = 2; stream <= 2'000; ++stream) {
    one.first = one.stream = stream;
    program.run(one, 4);
  }
  at_most("the share of recording", share_of_recording(program, one.calls), 0.14);
}

TEST(what_does_not_come_by_for_long_is_not_recorded) {
  Program program;
  program.compile = -1;
  program.run(segment(1'000, 1'000), 100'000);
  const uint64_t before = program.plans();
  Segment one = segment(1'000, 100);
  for (uint64_t kind = 2; kind <= 100; ++kind) {
    one.kind = one.first = one.stream = kind;
    program.run(one, 20);
  }
  CHECK(program.plans() == before);
}

// Of many loops, one after another, that compiling makes slower.
TEST(trials_take_a_part_of_the_time) {
  Program program;
  program.record_a_call = 10 * kMicrosecond;
  program.compile = kMillisecond;
  Segment one = segment(200, 10'000);
  Nanoseconds best = 0;
  for (uint64_t kind = 1; kind <= 300; ++kind) {
    one.kind = one.first = one.stream = kind;
    program.run(one, 2'000);
    best += 2'000 * one.uncompiled;
  }
  const auto recording = static_cast<double>(
      program.record_a_call * static_cast<Nanoseconds>(program.plans() * one.calls));
  const double loss =
      (static_cast<double>(program.now()) - recording) / static_cast<double>(best) - 1;
  at_most("the loss", loss, 0.03);
}

// While the compiled tier is tried the machine does something else for a while.
TEST(a_pause_decides_nothing) {
  Program program;
  Segment one = segment(1'000, 500);
  int seen = 0;
  while (program.trials(1) == 0) {
    const bool tried = program.policy().tries();
    one.compiled = tried && ++seen == 3 ? kSecond / 10 : 500 * kMicrosecond;
    program.run(one);
  }
  CHECK(seen > 3);
  CHECK(program.tier(1) == Tier::Compiled);
}

// Batches of forty lengths, one after another: of each there is an executable only after it has
// come by often enough, and long ones take several times what short ones do.
double lost_by_lengths(Program& program, double compiled, Nanoseconds seconds) {
  double best = 0;
  const Nanoseconds begin = program.now();
  for (uint64_t at = 0; program.now() - begin < seconds * kSecond; ++at) {
    const uint64_t length = 1 + at * 17 % 40;
    Segment one;
    one.calls = 300;
    one.first = one.stream = length;
    one.uncompiled = (2'000 + 150 * static_cast<Nanoseconds>(length)) * kMicrosecond;
    one.compiled = static_cast<Nanoseconds>(static_cast<double>(one.uncompiled) * compiled);
    program.run(one);
    best += std::min(1.0, compiled) * static_cast<double>(one.uncompiled);
  }
  return static_cast<double>(program.now() - begin) / best - 1;
}

TEST(many_sizes_are_judged_by_their_own_times) {
  for (const double compiled : {0.5, 0.88, 1.1, 1.5}) {
    Program program;
    program.noise = 0.05;
    program.compile = kSecond;
    program.first_run = 30 * kMillisecond;
    lost_by_lengths(program, compiled, 60);
    CHECK((program.tier(1) == Tier::Compiled) == (compiled < 1));
    at_most("the loss", lost_by_lengths(program, compiled, 60), 0.02);
  }
}

// Tiers of noisy segments: trials in turns switch by design; what counts is what stays.
TEST(noise_makes_no_flapping) {
  for (const double compiled : {194.0, 200.0, 206.0}) {
    Program program;
    program.noise = 0.05;
    const Segment one = segment(200, static_cast<Nanoseconds>(compiled));
    CHECK(program.run_until_tried(one));
    Tier tier = program.tier(1);
    int changes = 0;
    for (int at = 0; at < 100'000; ++at) {
      program.run(one);
      changes += program.tier(1) != tier;
      tier = program.tier(1);
    }
    at_most("changes", changes, 3);
  }
}

// Eight forward passes whose actions are read feed one backward pass, and only this one profits.
TEST(only_what_profits_is_compiled) {
  for (const bool coupled : {false, true}) {
    Program program;
    Segment forward = segment(60, 90), backward = segment(2'000, 900);
    backward.kind = backward.first = backward.stream = 2;
    bool was_compiled = false;
    for (int round = 0; round < 30'000; ++round) {
      for (int at = 0; at < 8; ++at) {
        Segment step = forward;
        // The first to read what a compiled backward pass makes waits for it.
        step.uncompiled += coupled && was_compiled && at == 0 ? 100 * kMicrosecond : 0;
        program.run(step);
      }
      was_compiled = program.run(backward) == Tier::Compiled;
    }
    CHECK(program.tier(1) == Tier::Uncompiled);
    CHECK(program.tier(2) == Tier::Compiled);
  }
}

// What one saves, the other pays: the loop is slower though its segments are faster.
TEST(a_tier_that_costs_others_more_is_left) {
  Program program;
  Segment first = segment(500, 300), second = segment(500, 500);
  second.kind = second.first = second.stream = 2;
  Tier tier = Tier::Uncompiled;
  for (int round = 0; round < 40'000; ++round) {
    tier = program.run(first);
    Segment after = second;
    after.uncompiled += tier == Tier::Compiled ? 400 * kMicrosecond : 0;
    after.compiled += tier == Tier::Compiled ? 400 * kMicrosecond : 0;
    program.run(after);
  }
  CHECK(program.tier(1) == Tier::Uncompiled);
}

TEST(growing_sizes_are_never_recorded) {
  Program program;
  Segment one = segment(2'000, 100);
  for (uint64_t length = 1; length <= 20'000; ++length) {
    one.first = one.stream = length;
    program.run(one);
  }
  CHECK(program.plans() == 0);
  Program alike; // which begin with a call of one size
  for (uint64_t length = 1; length <= 20'000; ++length) {
    one.first = 1;
    one.stream = length;
    alike.run(one);
  }
  CHECK(alike.plans() == 0);
}

TEST(a_smaller_last_batch_follows) {
  Program program;
  Segment batch = segment(2'000, 500), last = segment(1'000, 300);
  last.first = last.stream = 2;
  Tier tier = Tier::Uncompiled;
  for (int epoch = 0; epoch < 60; ++epoch) {
    program.run(batch, 50);
    tier = program.run(last);
  }
  CHECK(program.tier(1) == Tier::Compiled);
  CHECK(tier == Tier::Compiled);
  CHECK(program.plans() == 2);
}

// A number of the stream changes once it has been recorded: a plan with one that varies is made.
TEST(numbers_that_move_need_a_second_plan) {
  Program program;
  Segment one = segment(1'000, 400);
  int64_t at = 0;
  while (program.plans() == 0 && ++at < 1'000'000) {
    program.run(one);
  }
  one.stream = 2; // by what the recorder hashes they are one stream; the plan is another
  for (int step = 0; step < 20'000; ++step) {
    program.run(one);
  }
  CHECK(program.tier(1) == Tier::Compiled);
  CHECK(program.plans() == 2);
}

TEST(what_never_gets_ready_stays_uncompiled) {
  Program program;
  program.compile = -1;
  const Segment one = segment(500, 100);
  program.run(one, 100'000);
  CHECK(program.plans() == 1);
  CHECK(program.tier(1) == Tier::Uncompiled);
  CHECK(program.trials(1) == 0);
}

// A phase of the program in which the other tier is faster.
TEST(a_change_of_phase_is_followed) {
  Program program;
  CHECK(program.run_until_tried(segment(1'000, 500)));
  program.run(segment(1'000, 500), 5'000);
  CHECK(program.tier(1) == Tier::Compiled);
  program.run(segment(500, 1'000), 60'000);
  CHECK(program.tier(1) == Tier::Uncompiled);
  program.run(segment(1'000, 500), 200'000);
  CHECK(program.tier(1) == Tier::Compiled);
}

TEST(memory_is_bounded) {
  Program kinds;
  Segment one = segment(100, 100);
  size_t most = 0;
  for (uint64_t at = 1; at <= 100'000; ++at) {
    one.kind = one.first = one.stream = at;
    kinds.run(one);
    most = std::max(most, kinds.policy().kinds().size());
  }
  at_most("what it holds", static_cast<double>(most), 4096);
  Program entries;
  one.kind = 1;
  for (uint64_t at = 1; at <= 100'000; ++at) {
    one.first = one.stream = at;
    entries.run(one);
    most = std::max(most, entries.policy().kinds().at(1).entries.size());
    CHECK(entries.policy().kinds().at(1).entries.at(at).streams.size() <= Entry::kStreams);
  }
  at_most("what it holds", static_cast<double>(most), 4096);
}

TEST(other_settings_decide_at_once) {
  for (const Setting setting : {Setting::Compiled, Setting::Uncompiled}) {
    Program program;
    program.policy().set(setting);
    const bool compiled = setting == Setting::Compiled;
    for (int at = 0; at < 10'000; ++at) {
      const Tier tier = program.run(segment(100, 10));
      CHECK((tier == Tier::Compiled) == compiled);
    }
    CHECK(program.trials(1) == 0);
  }
}

// A trial whose loop does not come back gives way to others.
TEST(a_trial_that_is_left_is_over) {
  Program program;
  const Segment one = segment(1'000, 500);
  while (!program.policy().tries()) {
    program.run(one);
  }
  Segment other = segment(1'000, 500);
  other.kind = other.first = other.stream = 2;
  CHECK(program.run_until_tried(other, 100'000));
  CHECK(program.tier(2) == Tier::Compiled);
}

// A loop of two segments with a compiled graph between them: what is recorded of both is one trace,
// and a segment that runs uncompiled ends the trace before it.
TEST(segments_around_a_graph_share_a_trace) {
  constexpr Nanoseconds kUncompiled = 300 * kMicrosecond, kAlone = 250 * kMicrosecond,
                        kTogether = 200 * kMicrosecond, kRecording = 20 * kMillisecond;
  Policy policy(0);
  policy.set(Setting::Auto);
  Place place;
  Nanoseconds now = 0;
  std::map<std::vector<uint64_t>, int> planned;
  size_t most = 0;
  std::vector<uint64_t> trace; // the kinds that it holds
  const auto cut = [&](Nanoseconds took) {
    const bool first = planned[trace]++ == 0;
    now += took + (first ? kRecording : 0);
    const auto handed = policy.hands_on(place, first, false, 20 * trace.size());
    CHECK(handed.size() == trace.size());
    most = std::max(most, handed.size());
    trace.clear();
  };
  for (int at = 0; at < 100'000; ++at) {
    for (const uint64_t kind : {1, 2}) {
      if (policy.begin(place, kind, kind, now) == Tier::Compiled) {
        trace.push_back(kind);
        continue;
      }
      if (!trace.empty()) {
        cut(kAlone);
      }
      now += kUncompiled;
      policy.ends(place, kind, 20);
    }
    if (!trace.empty()) {
      cut(trace.size() == 1 ? kAlone : kTogether);
    }
  }
  CHECK(most == 2);
  CHECK(planned.size() <= 3);
  for (const auto& [kind, found] : policy.kinds()) {
    CHECK(found.tier == Tier::Compiled && found.ready == 1);
  }
}

} // namespace

} // namespace simulated
