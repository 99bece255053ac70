// A node of the trie of known streams: one recorded call.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/python_bridge.h"
#include "tracing/op_info.h"

namespace fuse {

uint64_t hash_words(c10::ArrayRef<uint64_t> words);

enum class ScalarKind : uint8_t { Float, Integer, Offset };

// A number that a call carries beside its structure, and what is known of its place.
struct ScalarBits {
  uint64_t bits;
  ScalarKind kind;
  const void* host = nullptr; // the CPU tensor it was read from, if it was
};

// Which values one program can reach at a place: those of a view's offset, or of a number.
class Reach {
 public:
  Reach() = default;

  // What the engine says: triples of integers, a dimension each, or one of a number's range.
  // GIL held; check PyErr_Occurred().
  explicit Reach(PyObject* triples) {
    for (Py_ssize_t at = 0; at < PyTuple_Size(triples); ++at) {
      PyObject* triple = PyTuple_GetItem(triples, at);
      PyObject* first = PyTuple_GetItem(triple, 0);
      PyObject* second = PyTuple_GetItem(triple, 1);
      PyObject* third = PyTuple_GetItem(triple, 2);
      if (PyFloat_Check(first)) {
        ranged_ = true;
        least_ = PyFloat_AsDouble(first);
        most_ = PyFloat_AsDouble(second);
        special_ = third == Py_True;
      } else {
        dimensions_.push_back(
            {PyLong_AsLongLong(first), PyLong_AsLongLong(second), PyLong_AsLongLong(third)});
      }
    }
  }

  bool holds(const ScalarBits& value) const {
    return ranged_ ? is_in_range(value) : is_in_view(static_cast<int64_t>(value.bits));
  }

 private:
  struct Dimension {
    int64_t stride, size, extent;
  };

  bool is_in_range(const ScalarBits& value) const {
    auto number = static_cast<double>(static_cast<int64_t>(value.bits));
    if (value.kind == ScalarKind::Float) {
      std::memcpy(&number, &value.bits, sizeof number);
    }
    return (number >= least_ && number <= most_) || (special_ && !std::isfinite(number));
  }

  // Without dimensions, every value.
  bool is_in_view(int64_t rest) const {
    for (const Dimension& dimension : dimensions_) {
      if (rest / dimension.stride + dimension.extent >= dimension.size) {
        return false;
      }
      rest %= dimension.stride;
    }
    return dimensions_.empty() || rest == 0;
  }

  std::vector<Dimension> dimensions_; // of a view's offset: where it may move
  double least_ = 0, most_ = 0; // of a number that is converted to a dtype
  bool ranged_ = false;
  bool special_ = false; // infinities and NaN are in the range
};

struct ScalarPlace {
  uint64_t bits = 0;
  ScalarKind kind = ScalarKind::Float;
  bool dynamic = false; // has had two values: any value within reach matches from then on
  bool pinned = false; // must stay a constant: another value is another program
  Reach reach;

  void vary(Reach values) {
    dynamic = true;
    reach = std::move(values);
  }

  bool admits(uint64_t value) const {
    return dynamic ? reach.holds({value, kind}) : value == bits;
  }
};

struct NewTensor {
  c10::SmallVector<int64_t, 5> sizes, strides;
  c10::ScalarType dtype = c10::ScalarType::Float;
  size_t nbytes = 0;
  uint32_t layout = 0;
};

struct Write {
  uint32_t operand = 0; // index among the call's tensor operands
  uint32_t layout = 0; // of the value after the write
};

struct Resize {
  uint32_t operand = 0;
  c10::SmallVector<int64_t, 5> sizes;
  c10::SmallVector<int64_t, 5> strides;
};

struct Result {
  enum class Kind : uint8_t { Argument, New, Undefined, List, Constant } kind = Kind::New;
  int index = 0; // argument number, or first new tensor
  int count = 1; // tensors of a list
  c10::IValue constant{}; // a number that follows from the metadata alone
};

struct TrieNode;

struct Plan {
  // A call after which the plan's first `stages` have all that they need.
  struct Point {
    TrieNode* node;
    int64_t stages;
  };
  std::vector<int32_t> live; // values that the plan leaves alive, ascending
  std::vector<int32_t> donated; // leaves it consumes, ascending
  PyRef handle;
  std::vector<Point> points; // in the order of the stream
  bool ready = false; // whether all its executables are there
};

// Where the first stages of a plan can start before its trace has ended: the plan that the stream
// ended with when it last came by, and how often it did so again.
struct Speculation {
  static constexpr uint32_t kPatience = 3;
  PyRef handle;
  int64_t stages = 0;
  uint32_t right = 0;
  uint32_t wrong = 0;

  // A stream that keeps ending otherwise computes its first stages twice for nothing.
  bool trusted() const {
    return wrong < kPatience || right > 4 * wrong;
  }
};

struct TrieNode {
  TrieNode* parent = nullptr;
  const OpInfo* op = nullptr;
  std::vector<uint64_t> words; // the call's structure, compared whole
  std::vector<ScalarPlace> scalars;
  std::vector<NewTensor> tensors;
  std::vector<Write> writes;
  std::vector<Resize> resizes;
  std::vector<Result> results;
  size_t nbytes = 0; // of all that the call makes
  uint32_t random_blocks = 0; // Philox blocks the call draws
  uint64_t shape_hash = 0; // of the call without value numbers: what periods are found with
  uint64_t last_used = 0; // serial of the last trace that came by
  bool cut_after = false; // a learned repeat mark
  PyRef record; // fuse.trace.node.Node
  std::vector<std::unique_ptr<TrieNode>> children;
  std::unordered_multimap<uint64_t, TrieNode*> index; // once there are many children
  std::vector<Plan> plans;
  std::unique_ptr<Speculation> speculation;

  // Calls `function` with every node at and below this one, each before those below it.
  template <typename Function>
  void for_each(Function&& function) {
    std::vector<TrieNode*> open{this};
    while (!open.empty()) {
      TrieNode* node = open.back();
      open.pop_back();
      function(*node);
      for (const auto& child : node->children) {
        open.push_back(child.get());
      }
    }
  }

  // Forgets the calls below that no trace since `serial` has come by; whether there were any.
  bool forget_before(uint64_t serial) {
    speculation.reset(); // the plan may be below
    if (std::erase_if(children, [&](const auto& child) { return child->last_used < serial; }) ==
        0) {
      return false;
    }
    return true;
  }

  // Forgets every plan at and below this node, and what may be started of them above it.
  void forget_plans() {
    for (TrieNode* node = this; node != nullptr; node = node->parent) {
      node->speculation.reset();
    }
    forget_plans_below();
  }

 private:
  void forget_plans_below() {
    plans.clear();
    speculation.reset();
    for (auto& child : children) {
      child->forget_plans_below();
    }
  }
};

} // namespace fuse
