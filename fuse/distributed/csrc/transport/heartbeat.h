// The heartbeat: which ranks of a group live still, as far as its store and this host tell.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fuse::distributed {

// Every rank writes down, each second, which process it is and which call it has come to; and,
// once, how it left. Dead is whose process or connection is gone; who merely says nothing is late.
// No call here takes longer than some seconds, also where the store's process is stopped.
class Heartbeat : public std::enable_shared_from_this<Heartbeat> {
 public:
  Heartbeat(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size);

  // This rank has come to a call.
  void note(uint64_t number, const std::string& text);
  // This rank will not come to another; the first text counts.
  void leave(const std::string& text);
  // Writes this rank's state down; false once it has left, or the store has gone.
  bool beat();
  // How a rank has ended, what goes after its number; empty as far as is known. Waits for nothing:
  // it has another thread look, at most once in half a second.
  std::string end_of(int rank);
  // A line for each rank that has ended, likewise.
  std::string gone();
  // Why a call of this number does not come to pass: a line for each rank that is to blame. The
  // connection to `lost` has closed, if there is such a rank. Takes some seconds where a rank is
  // silent.
  std::string blame(uint64_t number, int lost);
  // What is to be said of one rank, in the same words; a line.
  std::string state_of(int rank, bool lost);

 private:
  struct Sign {
    uint64_t beat = 0, number = 0;
    std::string process, text;
    bool any = false;
  };
  struct Seen {
    std::vector<Sign> signs;
    std::vector<std::string> fates; // how ranks say that they left
    bool store_gone = false;
  };
  Seen look(const std::set<int>& ranks);
  std::string found(const std::string& key);
  std::string line_of(int rank, const Seen& before, const Seen& now, uint64_t number, int lost);
  std::string end_in(int rank, const Seen& seen, int lost) const;
  std::set<int> others() const;
  // Two looks, apart by as long as it takes to tell silence, or last words; false where the store
  // does not answer.
  bool look_twice(const std::set<int>& ranks, int lost, Seen& before, Seen& now);
  bool look_within(const std::set<int>& ranks, Seen& seen);
  std::string of_store(int lost);

  c10::intrusive_ptr<c10d::Store> written_; // a connection of its own, for what asks for no answer
  std::mutex reading_;
  c10::intrusive_ptr<c10d::Store> read_; // another one, once it is needed
  std::mutex mutex_;
  int rank_;
  int size_;
  std::string process_;
  uint64_t beats_ = 0;
  uint64_t number_ = 0;
  std::string text_;
  bool left_ = false;
  bool looking_ = false;
  std::set<int> wanted_; // whose end has been asked for
  Seen seen_;
  std::chrono::steady_clock::time_point looked_;
};

// The thread that beats for every group of the process.
void beat_for(const std::shared_ptr<Heartbeat>& heartbeat);
// The process ends: every group is left with this text.
void leave_all(const std::string& text);

} // namespace fuse::distributed
