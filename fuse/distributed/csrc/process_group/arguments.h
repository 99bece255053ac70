// Arguments of collectives: what they are for people, and whether they fit.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "collectives/call.h"

namespace fuse::distributed {

// "float32[2,3]".
std::string text_of(const at::Tensor& tensor);
std::string texts_of(const std::vector<at::Tensor>& tensors);
std::vector<at::Tensor> flattened(const std::vector<std::vector<at::Tensor>>& lists);
// Whether all have as many elements as the first.
bool alike(const std::vector<at::Tensor>& tensors);

// Targets that are parts of a storage, each with what gets its value, which the call lets go of.
using Pieces = std::vector<std::pair<at::Tensor, at::Tensor>>;
Pieces pieces_of(Call& call);

// Each throws, in the words of `what`, the collective that was called.
void check_one(const std::vector<at::Tensor>& tensors, const char* what);
void check_alike(const at::Tensor& one, const at::Tensor& other, const char* what);
void check_size(bool fits, const char* what, const std::string& outputs, const std::string& inputs);

} // namespace fuse::distributed
