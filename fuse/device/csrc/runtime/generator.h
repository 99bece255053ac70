// The generator: random state of a device, a seed and how many Philox blocks have been drawn.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace fuse {

// State is 16 bytes, little-endian: seed, then offset in blocks of four 32-bit words.
class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(
      c10::DeviceIndex device, uint64_t seed = c10::detail::getNonDeterministicRandom());
  ~PhiloxGenerator() override = default;

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  static c10::DeviceType device_type() {
    return c10::DeviceType::PrivateUse1;
  }

 private:
  PhiloxGenerator* clone_impl() const override;
  uint64_t seed_;
  uint64_t offset_ = 0;
};

struct RandomDraw {
  uint64_t seed, offset;
};
// Takes `blocks` blocks from the generator. Thread-safe.
RandomDraw draw(at::Generator& generator, uint64_t blocks);
// The generator that operators use when none is given.
const at::Generator& default_generator(c10::DeviceIndex device);

} // namespace fuse
