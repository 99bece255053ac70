#include "transport/heartbeat.h"

#include <algorithm>
#include <sstream>
#include <thread>
#include <utility>

#include "transport/process.h"
#include "transport/threads.h"
#include "transport/within.h"

namespace fuse::distributed {

namespace {

constexpr auto kBetweenBeats = std::chrono::milliseconds(1000);
constexpr auto kSilence = std::chrono::milliseconds(3000); // some beats: then it is worth a word
constexpr auto kLastWords = std::chrono::milliseconds(500); // for what was written before an end
constexpr auto kBetweenEnds = std::chrono::milliseconds(500);
constexpr auto kBetweenGlances = std::chrono::milliseconds(100);
constexpr auto kStorePatience = std::chrono::milliseconds(3000);

// Every living group of the process, and the thread that beats for them.
class Heart {
 public:
  static Heart& global() {
    static auto* heart = new Heart; // its thread outlives static destruction
    return *heart;
  }
  void add(const std::shared_ptr<Heartbeat>& heartbeat) {
    std::lock_guard<std::mutex> guard(mutex_);
    heartbeats_.push_back(heartbeat);
    if (heartbeats_.size() == 1 && !running_) {
      running_ = true;
      std::thread([this] { run(); }).detach();
    }
  }
  std::vector<std::shared_ptr<Heartbeat>> living() {
    std::lock_guard<std::mutex> guard(mutex_);
    std::vector<std::shared_ptr<Heartbeat>> found;
    for (const auto& weak : heartbeats_) {
      if (auto one = weak.lock()) {
        found.push_back(std::move(one));
      }
    }
    heartbeats_.assign(found.begin(), found.end());
    return found;
  }

 private:
  void run() {
    for (;;) {
      for (const auto& one : living()) {
        one->beat();
      }
      std::this_thread::sleep_for(kBetweenBeats);
    }
  }
  std::mutex mutex_;
  std::vector<std::weak_ptr<Heartbeat>> heartbeats_;
  bool running_ = false;
};

} // namespace

Heartbeat::Heartbeat(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size)
    : written_(store->clone()), rank_(rank), size_(size), process_(own_process()) {
  seen_.signs.resize(static_cast<size_t>(size));
  seen_.fates.resize(static_cast<size_t>(size));
}

void Heartbeat::note(uint64_t number, const std::string& text) {
  std::lock_guard<std::mutex> guard(mutex_);
  number_ = number;
  text_ = text;
}

void Heartbeat::leave(const std::string& text) {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    if (left_) {
      return;
    }
    left_ = true;
  }
  try {
    written_->set("fate/" + std::to_string(rank_), text);
  } catch (const std::exception&) {
    // Whoever held the store has left before: nobody can read this any more.
  }
}

bool Heartbeat::beat() {
  std::ostringstream sign;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    if (left_) {
      return false;
    }
    sign << ++beats_ << ' ' << number_ << ' ' << process_ << '\n' << text_;
  }
  try {
    written_->set("sign/" + std::to_string(rank_), sign.str());
  } catch (const std::exception&) {
    std::lock_guard<std::mutex> guard(mutex_);
    left_ = true; // the store has gone, and with it whoever held it
    return false;
  }
  return true;
}

// ---- looks at the others ------------------------------------------------------------------------

std::set<int> Heartbeat::others() const {
  std::set<int> found;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) {
      found.insert(rank);
    }
  }
  return found;
}

std::string Heartbeat::found(const std::string& key) {
  return read_->check({key}) ? read_->get_to_str(key) : "";
}

Heartbeat::Seen Heartbeat::look(const std::set<int>& ranks) {
  std::lock_guard<std::mutex> reading(reading_);
  std::unique_lock<std::mutex> lock(mutex_);
  Seen seen = seen_; // nobody else writes it: see `reading`
  lock.unlock();
  try {
    if (!read_) {
      read_ = written_->clone();
    }
    for (const int rank : ranks) {
      const auto at = static_cast<size_t>(rank);
      seen.fates[at] = found("fate/" + std::to_string(rank));
      std::istringstream text(found("sign/" + std::to_string(rank)));
      Sign& sign = seen.signs[at];
      sign.any = static_cast<bool>(text >> sign.beat >> sign.number);
      text.get();
      std::getline(text, sign.process);
      std::getline(text, sign.text, '\0');
    }
  } catch (const std::exception&) {
    seen.store_gone = true; // what was seen before stays
  }
  lock.lock();
  seen_ = seen;
  return seen;
}

bool Heartbeat::look_within(const std::set<int>& ranks, Seen& seen) {
  const auto result = std::make_shared<Seen>();
  const bool answered = within(
      Clock::now() + kStorePatience,
      [self = shared_from_this(), ranks, result] { *result = self->look(ranks); });
  if (answered) {
    seen = *result;
  }
  return answered;
}

std::string Heartbeat::end_of(int rank) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto now = Clock::now();
  wanted_.insert(rank);
  if (!looking_ && now - looked_ > kBetweenEnds) {
    looking_ = true;
    looked_ = now;
    Threads::global().run([self = shared_from_this(), ranks = std::exchange(wanted_, {})] {
      self->look(ranks);
      std::lock_guard<std::mutex> guard(self->mutex_);
      self->looking_ = false;
    });
  }
  const Seen seen = seen_;
  lock.unlock();
  return end_in(rank, seen, -1);
}

std::string Heartbeat::gone() {
  std::string lines;
  for (const int rank : others()) {
    const std::string end = end_of(rank);
    lines += end.empty() ? "" : "\n  rank " + std::to_string(rank) + " " + end;
  }
  return lines;
}

// ---- what is said of them -----------------------------------------------------------------------

std::string Heartbeat::end_in(int rank, const Seen& seen, int lost) const {
  const auto at = static_cast<size_t>(rank);
  if (!seen.fates[at].empty()) {
    return seen.fates[at];
  }
  if (has_ended(seen.signs[at].process)) {
    return "has died: its process is gone, and said nothing before";
  }
  return rank == lost ? "has died: its connection has closed, and it said nothing before" : "";
}

bool Heartbeat::look_twice(const std::set<int>& ranks, int lost, Seen& before, Seen& now) {
  const auto began = Clock::now();
  if (!look_within(ranks, before)) {
    return false;
  }
  now = before;
  // Whether there is more to learn: an end without words, which may be on their way, or silence.
  const auto open = [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    if (!now.fates[at].empty()) {
      return false;
    }
    if (!end_in(rank, now, lost).empty()) {
      return Clock::now() - began < kLastWords;
    }
    return lost < 0 && now.signs[at].any && now.signs[at].beat == before.signs[at].beat &&
        Clock::now() - began < kSilence;
  };
  while (!now.store_gone && std::any_of(ranks.begin(), ranks.end(), open)) {
    std::this_thread::sleep_for(kBetweenGlances);
    if (!look_within(ranks, now)) {
      return false;
    }
  }
  return true;
}

std::string Heartbeat::line_of(
    int rank, const Seen& before, const Seen& now, uint64_t number, int lost) {
  const auto at = static_cast<size_t>(rank);
  const Sign& sign = now.signs[at];
  std::ostringstream line;
  line << "\n  rank " << rank << " ";
  const std::string end = end_in(rank, now, lost);
  if (!end.empty()) {
    line << end;
    return line.str();
  }
  if (!sign.any) {
    line << "has not made this group yet";
    return line.str();
  }
  const bool silent = lost < 0 && sign.beat == before.signs[at].beat;
  line
      << (silent ? "is late: it has said nothing for some seconds (stopped, without a processor, "
                   "or its host is out of reach)"
                 : "is alive");
  if (sign.number < number) {
    line << (silent ? ", and" : " but") << " has not come to call " << number;
  }
  if (sign.number != 0) {
    line << "; its last was call " << sign.number << ": " << sign.text;
  }
  return line.str();
}

std::string Heartbeat::of_store(int lost) {
  std::unique_lock<std::mutex> lock(mutex_);
  const Seen seen = seen_;
  lock.unlock();
  std::string lines = seen.store_gone
      ? "\n  the group's store is gone: the process that held it (rank 0, or torchrun's agent) has "
        "died or left"
      : "\n  the group's store does not answer: the process that holds it (rank 0, or torchrun's "
        "agent) is late: stopped, without a processor, or its host is out of reach";
  for (const int rank : others()) {
    const std::string end = end_in(rank, seen, lost);
    lines += end.empty() ? "" : "\n  rank " + std::to_string(rank) + " " + end;
  }
  return lines;
}

std::string Heartbeat::blame(uint64_t number, int lost) {
  beat(); // others that look at this rank now see where it is
  Seen before;
  Seen now;
  if (!look_twice(others(), lost, before, now) || now.store_gone) {
    return of_store(lost);
  }
  std::string lines;
  for (const int rank : others()) {
    const auto at = static_cast<size_t>(rank);
    const Sign& sign = now.signs[at];
    const bool silent = lost < 0 && sign.beat == before.signs[at].beat;
    if (!end_in(rank, now, lost).empty() || silent || (lost < 0 && sign.number < number)) {
      lines += line_of(rank, before, now, number, lost);
    }
  }
  return lines.empty() ? "\n  every other rank is alive and has come to this call" : lines;
}

std::string Heartbeat::state_of(int rank, bool lost) {
  Seen before;
  Seen now;
  if (!look_twice({rank}, lost ? rank : -1, before, now) || now.store_gone) {
    return of_store(lost ? rank : -1);
  }
  return line_of(rank, before, now, 0, lost ? rank : -1);
}

void beat_for(const std::shared_ptr<Heartbeat>& heartbeat) {
  heartbeat->beat();
  Heart::global().add(heartbeat);
}

void leave_all(const std::string& text) {
  for (const auto& one : Heart::global().living()) {
    one->leave(text);
  }
}

} // namespace fuse::distributed
