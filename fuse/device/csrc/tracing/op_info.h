// Operator information: what the recorder needs to know, worked out once from the schema.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

namespace fuse {

// What the schema does not say: see fuse/trace/operators.py, where each field is described.
struct OperatorRecord {
  std::vector<int> writes;
  std::string draws; // empty if it does not
  std::vector<std::string> numbers;
  std::vector<std::string> flags; // those that are true

  bool is(const char* flag) const {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
  }
};

struct OpInfo {
  enum class Kind : uint8_t { Value, Scalar, Dtype };
  // How a random operator draws: for each element from one word alone, or otherwise.
  enum class Draws : uint8_t { No, Elements, Dropout, Samples, Permutation };
  enum class Known : uint8_t { Unknown, No, Yes };
  struct Return {
    int alias = -1; // argument that this result is, or -1 for a new tensor
    bool list = false;
  };

  std::string name; // "add.Tensor", without the namespace for aten
  std::string base; // "bernoulli" of "bernoulli_.float"
  std::vector<Kind> kinds; // one an argument
  std::vector<bool> written; // the argument's memory is overwritten
  std::vector<Return> returns;
  bool nonfunctional = false; // writes an argument
  bool writes = false; // that, or one that its schema does not say
  bool bounds = false; // draws integers between bounds, which a dtype may not hold
  bool counts_up = false; // arange: its numbers decide the result's size, and its values
  bool indexes = false; // takes tensors of indices, which may be on the host
  bool undefined_rows = false; // the CPU's kernel leaves undefined what is zeros on the device
  // A fused optimizer's step: PyTorch's kernel for the CPU is right for dense float32 and float64
  // alone. It does not train in half precision, and overwrites what lies between the elements of a
  // strided view.
  bool steps = false;
  Draws draws = Draws::No;
  int generator = -1; // the argument that is one, or none
  int size = -1; // the argument that is the result's size, or none
  mutable std::atomic<Known> on_cpu{Known::Unknown}; // may run uncompiled at first sight

  static const OpInfo& of(const c10::OperatorHandle& op);
  // Says what is special of an operator, by name without overload.
  static void declare(const std::string& name, OperatorRecord record);
};

} // namespace fuse
