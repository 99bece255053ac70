// Philox on the host: the words of a draw, and tensors of what is made of each.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/generator.h"

// Compiled for wide registers, too, and chosen where the processor has them. Not by Clang, which
// names targets otherwise, nor with ThreadSanitizer, which the choice is made too early for.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define FUSE_FOR_EACH_TARGET __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FUSE_FOR_EACH_TARGET
#endif

namespace fuse {

constexpr size_t kBatch = 256; // words made at a time: 64 blocks of four, one in each lane
using Words = std::array<uint32_t, kBatch>;

// The words of the blocks from `from` on, block after block.
void draw_words(const RandomDraw& from, Words& words);

// The words of one block; `attempt` is the counter's third word.
std::array<uint32_t, 4> block_of(uint64_t seed, uint64_t counter, uint32_t attempt);

// A tensor whose elements are made of one word each, or of a pair where `Word` has 64 bits, in
// row-major order. `make` makes those of a batch: (std::array of Word, Value*).
template <typename Word, typename Value, typename Make>
at::Tensor draw_batches(const RandomDraw& from, at::IntArrayRef sizes, const Make& make) {
  constexpr int64_t kGrain = 1 << 8; // batches that are worth a thread
  constexpr size_t kCount = sizeof(Words) / sizeof(Word);
  at::Tensor drawn = at::empty(sizes, c10::CppTypeToScalarType<Value>::value);
  auto* const out = drawn.mutable_data_ptr<Value>();
  const auto count = static_cast<size_t>(drawn.numel());
  const auto batches = static_cast<int64_t>((count + kCount - 1) / kCount);
  at::parallel_for(0, batches, kGrain, [&](int64_t begin, int64_t end) {
    Words words;
    std::array<Value, kCount> made;
    for (auto at = static_cast<size_t>(begin); at < static_cast<size_t>(end); ++at) {
      draw_words({from.seed, from.offset + at * (kBatch / 4)}, words);
      make(std::bit_cast<std::array<Word, kCount>>(words), made.data());
      std::copy_n(made.data(), std::min(kCount, count - at * kCount), out + at * kCount);
    }
  });
  return drawn;
}

// The same of a `make` that says one element: (Word) -> Value.
template <typename Word, typename Value, typename Make>
at::Tensor draw_each(const RandomDraw& from, at::IntArrayRef sizes, const Make& make) {
  return draw_batches<Word, Value>(from, sizes, [&make](const auto& words, Value* made) {
    for (size_t at = 0; at < words.size(); ++at) {
      made[at] = make(words[at]);
    }
  });
}

} // namespace fuse
