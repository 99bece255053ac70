#include "check.h"

#include <ATen/ATen.h>

#include <cstring>
#include <sstream>

namespace fuse::distributed {

namespace {

// A rank's part: three words, its text, and for all_to_all the counts for each rank.
constexpr int64_t kText = 488;
constexpr int64_t kWords = 3; // the call's number, the signature's hash, the text's length
constexpr int64_t kHead = kWords * 8 + kText;

int64_t bytes_for(int64_t ranks) {
  return kHead + 2 * 8 * ranks;
}

// FNV-1a (Fowler, Noll, Vo), 64 bits: the same on every host.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037ull;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ull;
  }
  return hash;
}

} // namespace

Check::Check(c10d::Backend& gloo, const Call& call)
    : call_(call), rank_(gloo.getRank()), ranks_(gloo.getSize()) {
  at::Tensor mine = at::zeros({bytes_for(ranks_)}, at::kByte);
  auto* memory = mine.mutable_data_ptr<uint8_t>();
  const std::string& text = call.text;
  const uint64_t words[] = {
      call.number,
      hash_of(call.signature),
      static_cast<uint64_t>(std::min<int64_t>(kText, static_cast<int64_t>(text.size())))};
  std::memcpy(memory, words, sizeof(words));
  std::memcpy(memory + sizeof(words), text.data(), words[2]);
  const std::vector<int64_t>* counts[] = {&call.sent, &call.received};
  for (int64_t side = 0; side < 2; ++side) {
    if (!counts[side]->empty()) {
      std::memcpy(memory + kHead + side * 8 * ranks_, counts[side]->data(), 8 * ranks_);
    }
  }
  all_ = at::empty({ranks_ * mine.numel()}, at::kByte);
  c10d::AllgatherOptions options;
  options.timeout = call.timeout;
  work_ = gloo._allgather_base(all_, mine, options);
}

void Check::finish() {
  work_->wait();
  const std::string wrong = mismatch();
  TORCH_CHECK_WITH(DistBackendError, wrong.empty(), wrong);
}

uint64_t Check::word(int64_t rank, size_t at) const {
  uint64_t found = 0;
  std::memcpy(
      &found, all_.const_data_ptr<uint8_t>() + rank * bytes_for(ranks_) + at * 8, sizeof(found));
  return found;
}

std::string Check::text_of(int64_t rank) const {
  const auto* start =
      all_.const_data_ptr<uint8_t>() + rank * bytes_for(ranks_) + kWords * 8;
  return {reinterpret_cast<const char*>(start), word(rank, 2)};
}

std::string Check::mismatch() const {
  std::ostringstream wrong;
  const auto me = static_cast<int64_t>(rank_);
  const size_t sent = kHead / 8;
  const size_t received = sent + static_cast<size_t>(ranks_);
  for (int64_t one = 0; one < ranks_ && wrong.tellp() == 0; ++one) {
    if (word(one, 0) != word(me, 0) || word(one, 1) != word(me, 1)) {
      wrong << "the ranks of the group call different collectives, none of which has been run:";
      for (int64_t rank = 0; rank < ranks_; ++rank) {
        wrong << "\n  rank " << rank << ", call " << word(rank, 0) << ": " << text_of(rank);
      }
    }
    for (int64_t other = 0; other < ranks_ && call_.kind == Kind::AllToAll; ++other) {
      const uint64_t out = word(one, sent + static_cast<size_t>(other));
      const uint64_t in = word(other, received + static_cast<size_t>(one));
      if (out != in && wrong.tellp() == 0) {
        wrong << "all_to_all: rank " << one << " sends " << out << " elements to rank " << other
              << ", which expects " << in << "; none have been sent:\n  rank " << one << ": "
              << text_of(one) << "\n  rank " << other << ": " << text_of(other);
      }
    }
  }
  if (wrong.tellp() != 0) {
    wrong << "\n  way out: call the same collectives with the same sizes in the same order on "
             "every rank";
  }
  return wrong.str();
}

} // namespace fuse::distributed
