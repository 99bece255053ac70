#include "collectives/check.h"

#include <algorithm>
#include <cstring>
#include <sstream>

namespace fuse::distributed {

namespace {

// A rank's part: a head, and for all_to_all the counts for each rank. What follows is its payload.
struct Head {
  uint64_t number;
  uint64_t signature; // its hash
  uint32_t payload; // bytes
  uint32_t length; // of the text
  char text[488];
};

// FNV-1a (Fowler, Noll, Vo), 64 bits: the same on every host.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037ull;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211ull;
  }
  return hash;
}

std::string part_of(const Call& call, size_t payload, int size) {
  Head head{};
  head.number = call.number;
  head.signature = hash_of(call.signature);
  head.payload = static_cast<uint32_t>(payload);
  head.length = static_cast<uint32_t>(std::min(sizeof(head.text), call.text.size()));
  std::memcpy(head.text, call.text.data(), head.length);
  std::string part(sizeof(head) + 2 * sizeof(int64_t) * static_cast<size_t>(size), '\0');
  std::memcpy(part.data(), &head, sizeof(head));
  char* counts = part.data() + sizeof(head);
  for (const auto* side : {&call.sent, &call.received}) {
    if (!side->empty()) {
      std::memcpy(counts, side->data(), side->size() * sizeof(int64_t));
    }
    counts += sizeof(int64_t) * static_cast<size_t>(size);
  }
  return part;
}

// What every rank has said.
class Parts {
 public:
  Parts(const std::vector<std::string>& parts, const Call& call) : parts_(parts), call_(call) {}

  Head head(size_t rank) const {
    Head head{};
    std::memcpy(&head, parts_[rank].data(), sizeof(head));
    return head;
  }

  int64_t most() const {
    int64_t found = 0;
    for (size_t from = 0; from < parts_.size() && call_.kind == Kind::AllToAll; ++from) {
      for (size_t to = 0; to < parts_.size(); ++to) {
        found = std::max(found, count(from, 0, to));
      }
    }
    return found;
  }

  // Empty if they agree; `me` is this rank.
  std::string mismatch(size_t me) const {
    std::ostringstream wrong;
    const Head mine = head(me);
    for (size_t one = 0; one < parts_.size() && wrong.tellp() == 0; ++one) {
      if (head(one).number != mine.number || head(one).signature != mine.signature) {
        wrong << "the ranks of the group call different collectives, none of which has been run:";
        for (size_t rank = 0; rank < parts_.size(); ++rank) {
          wrong << "\n  rank " << rank << ", call " << head(rank).number << ": " << text(rank);
        }
      }
    }
    if (wrong.tellp() == 0 && call_.kind == Kind::AllToAll) {
      compare_counts(wrong);
    }
    if (wrong.tellp() != 0) {
      wrong << "\n  hint: call the same collectives with the same sizes in the same order on "
               "every rank";
    }
    return wrong.str();
  }

 private:
  std::string text(size_t rank) const {
    const Head found = head(rank);
    return {found.text, found.length};
  }

  int64_t count(size_t rank, size_t side, size_t of) const {
    int64_t found = 0;
    const size_t at = sizeof(Head) + (side * parts_.size() + of) * sizeof(found);
    std::memcpy(&found, parts_[rank].data() + at, sizeof(found));
    return found;
  }

  void compare_counts(std::ostringstream& wrong) const {
    for (size_t from = 0; from < parts_.size(); ++from) {
      for (size_t to = 0; to < parts_.size(); ++to) {
        const int64_t sent = count(from, 0, to);
        const int64_t expected = count(to, 1, from);
        if (sent != expected && wrong.tellp() == 0) {
          wrong << "all_to_all: rank " << from << " sends " << sent << " elements to rank " << to
                << ", which expects " << expected << "; none have been sent:\n  rank " << from
                << ": " << text(from) << "\n  rank " << to << ": " << text(to);
        }
      }
    }
  }

  const std::vector<std::string>& parts_;
  const Call& call_;
};

std::vector<Mesh::Space> spaces_of(std::vector<std::string>& texts) {
  std::vector<Mesh::Space> spaces;
  for (std::string& text : texts) {
    spaces.push_back({text.data(), text.size()});
  }
  return spaces;
}

} // namespace

std::vector<std::string> checked(
    Mesh& mesh, int rank, int size, Call& call, const std::string& payload) {
  const auto me = static_cast<size_t>(rank);
  const std::string mine = part_of(call, payload.size(), size);
  const std::string sent = mine + payload;
  const std::vector<Mesh::Bytes> out(static_cast<size_t>(size), {sent.data(), sent.size()});
  std::vector<std::string> parts(out.size(), std::string(mine.size(), '\0'));
  parts[me] = mine;
  mesh.exchange(out, spaces_of(parts), call.timeout);
  const Parts said(parts, call);
  std::vector<std::string> payloads(parts.size());
  bool any = false;
  for (size_t one = 0; one < parts.size(); ++one) {
    payloads[one].resize(one == me ? 0 : said.head(one).payload);
    any = any || !payloads[one].empty();
  }
  if (any) { // also where they do not agree: it has been sent
    mesh.exchange(std::vector<Mesh::Bytes>(out.size()), spaces_of(payloads), call.timeout);
  }
  const std::string wrong = said.mismatch(me);
  if (!wrong.empty()) {
    throw Mismatch(wrong);
  }
  payloads[me] = payload;
  call.most = said.most();
  return payloads;
}

} // namespace fuse::distributed
