// The generator: random state of a device, a seed and how many Philox blocks have been drawn.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <memory>
#include <mutex>

namespace fuse {

struct RandomDraw {
  uint64_t seed, offset;
};

// What is drawn from: see RandomDraw. Of one generator, or of several that `graphsafe_set_state`
// gave it.
struct PhiloxState {
  std::mutex mutex;
  uint64_t seed = 0;
  uint64_t offset = 0;
};

// Its state as a tensor is 16 bytes, little-endian: seed, then offset in blocks of four 32-bit
// words.
class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(
      c10::DeviceIndex device, uint64_t seed = c10::detail::getNonDeterministicRandom());
  PhiloxGenerator(c10::DeviceIndex device, std::shared_ptr<PhiloxState> state);
  ~PhiloxGenerator() override = default;

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  // A generator that draws from the same state, and one that from now on does.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override;
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override;

  // Takes `blocks` blocks. Thread-safe.
  RandomDraw draw(uint64_t blocks);

  static c10::DeviceType device_type() {
    return c10::DeviceType::PrivateUse1;
  }

 private:
  PhiloxGenerator* clone_impl() const override;
  std::shared_ptr<PhiloxState> state_;
};
// Throws, in PyTorch's words, for a generator of another device.
void check_own_generator(const at::Generator& generator);
// Takes `blocks` blocks from the generator, which is the device's. Thread-safe.
RandomDraw draw(at::Generator& generator, uint64_t blocks);
// The generator that operators use when none is given.
const at::Generator& default_generator(c10::DeviceIndex device);

} // namespace fuse
