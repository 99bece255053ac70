// What the other ranks of a group are doing, as far as the group's store tells.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace fuse::distributed {

// Every rank writes down, each second, that it lives and which call it has come to; and, once, how
// it left: so a rank that waits in vain can say what has become of the one it waits for.
class Peers {
 public:
  Peers(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);

  // This rank has come to a call.
  void note(uint64_t number, const std::string& text);
  // This rank will not come to another; the first text counts.
  void leave(const std::string& text);
  // Writes this rank's state down; false once it has left, or the store has gone.
  bool beat();
  // A line for each rank that has left; looks at most once in half a second.
  std::string gone();
  // Why a call of this number does not come to pass: a line for each rank that is to blame. Takes
  // some seconds where a rank may be dead.
  std::string blame(uint64_t number);

 private:
  struct Sign {
    uint64_t beat = 0, number = 0;
    std::string text;
    bool any = false;
  };
  Sign sign_of(int rank);
  std::string fate_of(int rank);
  std::string found(const std::string& key);

  std::mutex store_mutex_;
  c10::intrusive_ptr<c10d::Store> store_; // a connection of its own
  std::mutex mutex_;
  int rank_;
  int size_;
  uint64_t beats_ = 0;
  uint64_t number_ = 0;
  std::string text_;
  bool left_ = false;
  std::chrono::steady_clock::time_point looked_;
};

// The thread that beats for every group of the process.
void beat_for(const std::shared_ptr<Peers>& peers);
// The process ends: every group is left with this text.
void leave_all(const std::string& text);

} // namespace fuse::distributed
