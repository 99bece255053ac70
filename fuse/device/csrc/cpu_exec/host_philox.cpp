#include "cpu_exec/host_philox.h"

namespace fuse {

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
  for (int round = 0; round < 10; ++round) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t left = uint64_t{c0[lane]} * 0xD2511F53u;
      const uint64_t right = uint64_t{c2[lane]} * 0xCD9E8D57u;
      c0[lane] = static_cast<uint32_t>(right >> 32) ^ c1[lane] ^ k0;
      c1[lane] = static_cast<uint32_t>(right);
      c2[lane] = static_cast<uint32_t>(left >> 32) ^ c3[lane] ^ k1;
      c3[lane] = static_cast<uint32_t>(left);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
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
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{c[0]} * 0xD2511F53u;
    const uint64_t right = uint64_t{c[2]} * 0xCD9E8D57u;
    c = {
        static_cast<uint32_t>(right >> 32) ^ c[1] ^ k0,
        static_cast<uint32_t>(right),
        static_cast<uint32_t>(left >> 32) ^ c[3] ^ k1,
        static_cast<uint32_t>(left)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

} // namespace fuse
