// The core as one translation unit: PyTorch's headers are read once, which is most of the
// time that building takes.
#include "ahead.cpp" // NOLINT(bugprone-suspicious-include)
#include "brief.cpp" // NOLINT
#include "buffer.cpp" // NOLINT
#include "changing_shapes.cpp" // NOLINT
#include "cpu_layouts.cpp" // NOLINT
#include "cut.cpp" // NOLINT
#include "describe.cpp" // NOLINT
#include "device.cpp" // NOLINT
#include "encode.cpp" // NOLINT
#include "foreach.cpp" // NOLINT
#include "generalise.cpp" // NOLINT
#include "generator.cpp" // NOLINT
#include "host.cpp" // NOLINT
#include "host_draws.cpp" // NOLINT
#include "host_values.cpp" // NOLINT
#include "infer.cpp" // NOLINT
#include "kernels.cpp" // NOLINT
#include "masked_put.cpp" // NOLINT
#include "module.cpp" // NOLINT
#include "op_info.cpp" // NOLINT
#include "prepare.cpp" // NOLINT
#include "python_bridge.cpp" // NOLINT
#include "recorder.cpp" // NOLINT
#include "storage.cpp" // NOLINT
#include "unboxed.cpp" // NOLINT
#include "whole.cpp" // NOLINT
