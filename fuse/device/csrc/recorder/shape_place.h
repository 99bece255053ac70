#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace fuse {

// What runs uncompiled for a while: some, and twice as many each time, up to `kLongest`.
template <uint32_t kLongest>
class Rest {
 public:
  // One more; whether it is to rest.
  bool goes_on() {
    if (left_ == 0) {
      return false;
    }
    --left_;
    return true;
  }
  void begin() {
    left_ = next_;
    next_ = std::min(2 * next_, kLongest);
  }
  // The next one will be short again.
  void shorten() {
    next_ = kFirst;
  }

 private:
  static constexpr uint32_t kFirst = 16;
  uint32_t left_ = 0;
  uint32_t next_ = kFirst;
};

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
    if (rest_.goes_on()) {
      return true;
    }
    ++known_;
    return false;
  }

  // A call of a shape that it does not know.
  void meets_unknown() {
    if (rest_.goes_on()) {
      return;
    }
    if (known_ < kApart) {
      rest_.begin();
    } else {
      rest_.shorten();
    }
    known_ = 0;
  }

 private:
  static constexpr uint32_t kApart = 16; // more than a sequence can grow within the known shapes

  uint32_t known_ = 0; // compiled calls since the last one of an unknown shape
  Rest<4096> rest_; // of calls, whatever their shape
};

// How the traces end that begin with one call.
//
// A trace that is cut after a few calls, because what runs uncompiled reads it, costs a cut and a
// wait for little. Where that is how they end, they run uncompiled from their first call on, for
// a while, and longer each time.
class RaggedEnd {
 public:
  // A trace that begins here; whether it is to run uncompiled.
  bool rests() {
    return rest_.goes_on();
  }

  // A trace that began here has been cut, after `calls`, for a ragged call or for another reason.
  void ends(bool ragged, size_t calls) {
    if (!ragged || calls > kShort) {
      row_ = 0;
      rest_.shorten();
    } else if (++row_ >= kRow) {
      rest_.begin();
    }
  }

 private:
  static constexpr uint32_t kRow = 2;
  static constexpr size_t kShort = 16; // more are worth the cut

  uint32_t row_ = 0; // traces in a row that ended so
  Rest<64> rest_; // not longer: another program may begin so, too
};

} // namespace fuse
