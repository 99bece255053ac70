// The core as one translation unit: PyTorch's headers are read once, which is most of the
// time that building takes.
#include "device/buffer.cpp" // NOLINT
#include "device/device.cpp" // NOLINT
#include "device/generator.cpp" // NOLINT
#include "device/kernels.cpp" // NOLINT
#include "device/module.cpp" // NOLINT
#include "device/prepare.cpp" // NOLINT
#include "device/python_bridge.cpp" // NOLINT
#include "device/storage.cpp" // NOLINT
#include "recorder/ahead.cpp" // NOLINT(bugprone-suspicious-include)
#include "recorder/changing_shapes.cpp" // NOLINT
#include "recorder/cpu_layouts.cpp" // NOLINT
#include "recorder/cut.cpp" // NOLINT
#include "recorder/describe.cpp" // NOLINT
#include "recorder/encode.cpp" // NOLINT
#include "recorder/foreach.cpp" // NOLINT
#include "recorder/generalise.cpp" // NOLINT
#include "recorder/infer.cpp" // NOLINT
#include "recorder/masked_put.cpp" // NOLINT
#include "recorder/op_info.cpp" // NOLINT
#include "recorder/recorder.cpp" // NOLINT
#include "uncompiled/brief.cpp" // NOLINT
#include "uncompiled/host.cpp" // NOLINT
#include "uncompiled/host_draws.cpp" // NOLINT
#include "uncompiled/host_values.cpp" // NOLINT
#include "uncompiled/unboxed.cpp" // NOLINT
#include "uncompiled/whole.cpp" // NOLINT
