#include "cpu_exec/host_philox.h"

namespace fuse {

namespace {

constexpr int kRounds = 10;

// One round of one block.
[[gnu::always_inline]] inline void turn(
    uint32_t& c0, uint32_t& c1, uint32_t& c2, uint32_t& c3, uint32_t k0, uint32_t k1) {
  const uint64_t left = uint64_t{c0} * 0xD2511F53u;
  const uint64_t right = uint64_t{c2} * 0xCD9E8D57u;
  c0 = static_cast<uint32_t>(right >> 32) ^ c1 ^ k0;
  c1 = static_cast<uint32_t>(right);
  c2 = static_cast<uint32_t>(left >> 32) ^ c3 ^ k1;
  c3 = static_cast<uint32_t>(left);
}

// The next round's key.
[[gnu::always_inline]] inline void step(uint32_t& k0, uint32_t& k1) {
  k0 += 0x9E3779B9u;
  k1 += 0xBB67AE85u;
}

} // namespace

// Philox4x32-10 (Salmon et al., SC 2011; see fuse/backends/numpy/philox.py) in as many lanes as a
// batch has blocks: the inner loops are of a fixed length, which is what -O2 vectorises.
FUSE_FOR_EACH_TARGET
void draw_words(const RandomDraw& from, Words& words) {
  constexpr size_t kLanes = kBatch / 4;
  using Lanes = uint32_t[kLanes]; // NOLINT(modernize-avoid-c-arrays): std::array is not vectorised
  Lanes c0;
  Lanes c1;
  Lanes c2 = {};
  Lanes c3 = {};
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t counter = from.offset + lane;
    c0[lane] = static_cast<uint32_t>(counter);
    c1[lane] = static_cast<uint32_t>(counter >> 32);
  }
  auto k0 = static_cast<uint32_t>(from.seed);
  auto k1 = static_cast<uint32_t>(from.seed >> 32);
  for (int round = 0; round < kRounds; ++round) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      turn(c0[lane], c1[lane], c2[lane], c3[lane], k0, k1);
    }
    step(k0, k1);
  }
  uint32_t* const out = words.data();
  for (size_t lane = 0; lane < kLanes; ++lane) {
    out[4 * lane] = c0[lane];
    out[4 * lane + 1] = c1[lane];
    out[4 * lane + 2] = c2[lane];
    out[4 * lane + 3] = c3[lane];
  }
}

std::array<uint32_t, 4> block_of(uint64_t seed, uint64_t counter, uint32_t attempt) {
  std::array<uint32_t, 4> c{
      static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), attempt, 0};
  auto k0 = static_cast<uint32_t>(seed);
  auto k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kRounds; ++round) {
    turn(c[0], c[1], c[2], c[3], k0, k1);
    step(k0, k1);
  }
  return c;
}

} // namespace fuse
