#include "process_group/arguments.h"

#include <algorithm>
#include <sstream>

namespace fuse::distributed {

std::string text_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << dtype_name(tensor.scalar_type()) << '[';
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    text << (dim == 0 ? "" : ",") << tensor.size(dim);
  }
  text << ']';
  return text.str();
}

std::string texts_of(const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) {
    text += (text.empty() ? "" : ", ") + text_of(tensor);
  }
  return text;
}

std::vector<at::Tensor> flattened(const std::vector<std::vector<at::Tensor>>& lists) {
  std::vector<at::Tensor> all;
  for (const auto& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

bool alike(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return tensor.numel() == tensors.front().numel();
  });
}

Pieces pieces_of(Call& call) {
  Pieces pieces;
  for (Target& target : call.targets) {
    if (target.whole.defined()) {
      pieces.emplace_back(target.tensor, std::exchange(target.whole, at::Tensor()));
    }
  }
  return pieces;
}

void check_one(const std::vector<at::Tensor>& tensors, const char* what) {
  TORCH_CHECK_VALUE(tensors.size() == 1, what, ": one tensor, not ", tensors.size());
}

void check_alike(const at::Tensor& one, const at::Tensor& other, const char* what) {
  TORCH_CHECK_TYPE(
      one.scalar_type() == other.scalar_type(),
      what,
      ": tensors of one dtype, not ",
      text_of(one),
      " and ",
      text_of(other));
}

void check_size(
    bool fits, const char* what, const std::string& outputs, const std::string& inputs) {
  TORCH_CHECK_VALUE(fits, what, ": the sizes do not fit: outputs ", outputs, ", inputs ", inputs);
}

} // namespace fuse::distributed
