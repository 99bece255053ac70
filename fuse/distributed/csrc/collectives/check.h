// The check before every call: do all ranks of the group mean the same one?
#pragma once

#include <string>
#include <vector>

#include "collectives/call.h"
#include "transport/mesh.h"

namespace fuse::distributed {

// The ranks mean different calls. Every one of them learns it before anything has moved.
class Mismatch final : public std::exception {
 public:
  explicit Mismatch(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override {
    return text_.c_str();
  }

 private:
  std::string text_;
};

// One exchange of what each rank is about to do; with it goes `payload`, if it is short. Throws
// Mismatch with both sides' calls and lines. Returns every rank's payload, this one's included.
std::vector<std::string> checked(
    Mesh& mesh, int rank, int size, Call& call, const std::string& payload);
// How much may go with it.
constexpr size_t kMostPayload = 32 << 10;

} // namespace fuse::distributed
