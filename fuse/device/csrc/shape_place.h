#pragma once

#include <algorithm>
#include <cstdint>

namespace fuse {

// Calls at one place of a stream that are equal but for numbers and sizes.
//
// Past the cap, where calls of unknown shapes follow each other closely, what a compiled one
// between them saves is lost by coming and going, as in sequences that grow and start small again.
// So known shapes rest too for a while, and longer each time.
struct ShapePlace {
  uint32_t shapes = 0; // how many the trie knows
  bool capped = false; // it learns no more

  // A call of a shape that the trie knows, at a capped place; whether it is to run uncompiled.
  bool meets_known() {
    if (rest_ > 0) {
      --rest_;
      return true;
    }
    ++known_;
    return false;
  }

  // A call of a shape that it does not know.
  void meets_unknown() {
    if (rest_ > 0) {
      --rest_;
      return;
    }
    if (known_ < kApart) {
      rest_ = pause_;
      pause_ = std::min(2 * pause_, kLongestPause);
    } else {
      pause_ = kFirstPause;
    }
    known_ = 0;
  }

 private:
  static constexpr uint32_t kFirstPause = 16;
  static constexpr uint32_t kLongestPause = 4096;
  static constexpr uint32_t kApart = 16; // more than a sequence can grow within the known shapes

  uint32_t known_ = 0; // compiled calls since the last one of an unknown shape
  uint32_t rest_ = 0; // calls that are still to run uncompiled, whatever their shape
  uint32_t pause_ = kFirstPause; // what `rest_` will be next
};

} // namespace fuse
