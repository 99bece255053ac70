#include "peers.h"

#include <chrono>
#include <condition_variable>
#include <sstream>
#include <thread>

namespace fuse::distributed {

namespace {

constexpr auto kBetweenBeats = std::chrono::milliseconds(1000);
// A rank that has not beaten for so long has died: a beat, and as much again for a busy machine.
constexpr auto kSilence = std::chrono::milliseconds(3000);
constexpr auto kBetweenLooksAtFates = std::chrono::milliseconds(500);
constexpr auto kStorePatience = std::chrono::milliseconds(5000);

// Every living group of the process, and the thread that beats for them.
class Heart {
 public:
  static Heart& global() {
    static auto* heart = new Heart; // its thread outlives static destruction
    return *heart;
  }
  void add(const std::shared_ptr<Peers>& peers) {
    std::lock_guard<std::mutex> guard(mutex_);
    peers_.push_back(peers);
    if (peers_.size() == 1 && !running_) {
      running_ = true;
      std::thread([this] { run(); }).detach();
    }
  }
  std::vector<std::shared_ptr<Peers>> living() {
    std::lock_guard<std::mutex> guard(mutex_);
    std::vector<std::shared_ptr<Peers>> found;
    for (const auto& weak : peers_) {
      if (auto one = weak.lock()) {
        found.push_back(std::move(one));
      }
    }
    peers_.assign(found.begin(), found.end());
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
  std::vector<std::weak_ptr<Peers>> peers_;
  bool running_ = false;
};

} // namespace

Peers::Peers(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size)
    : store_(store->clone()), rank_(rank), size_(size) {
  store_->setTimeout(kStorePatience);
}

void Peers::note(uint64_t number, const std::string& text) {
  std::lock_guard<std::mutex> guard(mutex_);
  number_ = number;
  text_ = text;
}

void Peers::leave(const std::string& text) {
  {
    std::lock_guard<std::mutex> guard(mutex_);
    if (left_) {
      return;
    }
    left_ = true;
  }
  try {
    std::lock_guard<std::mutex> guard(store_mutex_);
    store_->set("fate/" + std::to_string(rank_), text);
  } catch (const std::exception&) {
    // Whoever held the store has left before: nobody can read this any more.
  }
}

bool Peers::beat() {
  std::ostringstream sign;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    if (left_) {
      return false;
    }
    sign << ++beats_ << ' ' << number_ << ' ' << text_;
  }
  try {
    std::lock_guard<std::mutex> guard(store_mutex_);
    store_->set("sign/" + std::to_string(rank_), sign.str());
  } catch (const std::exception&) {
    std::lock_guard<std::mutex> guard(mutex_);
    left_ = true; // the store has gone, and with it whoever held it
    return false;
  }
  return true;
}

std::string Peers::found(const std::string& key) {
  std::lock_guard<std::mutex> guard(store_mutex_);
  return store_->check({key}) ? store_->get_to_str(key) : "";
}

std::string Peers::fate_of(int rank) {
  return found("fate/" + std::to_string(rank));
}

Peers::Sign Peers::sign_of(int rank) {
  std::istringstream text(found("sign/" + std::to_string(rank)));
  Sign sign;
  sign.any = static_cast<bool>(text >> sign.beat >> sign.number);
  text.get();
  std::getline(text, sign.text, '\0');
  return sign;
}

std::string Peers::gone() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kBetweenLooksAtFates) {
    return "";
  }
  looked_ = now;
  std::string lines;
  for (int rank = 0; rank < size_; ++rank) {
    const std::string fate = rank == rank_ ? "" : fate_of(rank);
    lines += fate.empty() ? "" : "\n  rank " + std::to_string(rank) + " " + fate;
  }
  return lines;
}

std::string Peers::blame(uint64_t number) {
  std::ostringstream lines;
  try {
    beat(); // others that look at this rank now see where it is
    std::vector<Sign> before(static_cast<size_t>(size_));
    bool unclear = false;
    for (int rank = 0; rank < size_; ++rank) {
      before[rank] = sign_of(rank);
      unclear = unclear || (rank != rank_ && fate_of(rank).empty());
    }
    if (unclear) {
      std::this_thread::sleep_for(kSilence);
    }
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_) {
        continue;
      }
      const std::string fate = fate_of(rank);
      const Sign sign = sign_of(rank);
      if (!fate.empty()) {
        lines << "\n  rank " << rank << " " << fate;
      } else if (!sign.any) {
        lines << "\n  rank " << rank << " has not used this group yet, or died before it did";
      } else if (sign.beat == before[rank].beat) {
        lines << "\n  rank " << rank << " has died: killed, or its host is gone";
      } else if (sign.number < number) {
        lines << "\n  rank " << rank << " is alive but has not come to call " << number;
        if (sign.number != 0) {
          lines << "; its last was call " << sign.number << ": " << sign.text;
        }
      }
    }
  } catch (const std::exception&) {
    lines << "\n  the group's store is gone: the process that held it (rank 0, or torchrun's "
             "agent) has died or left";
  }
  const std::string found = lines.str();
  return found.empty() ? "\n  every other rank is alive and has come to this call" : found;
}

void beat_for(const std::shared_ptr<Peers>& peers) {
  peers->beat();
  Heart::global().add(peers);
}

void leave_all(const std::string& text) {
  for (const auto& one : Heart::global().living()) {
    one->leave(text);
  }
}

} // namespace fuse::distributed
