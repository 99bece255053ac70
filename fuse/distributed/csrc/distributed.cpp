// The library as one translation unit: PyTorch's headers are read once.
#include "call.cpp" // NOLINT(bugprone-suspicious-include)
#include "check.cpp" // NOLINT
#include "direct.cpp" // NOLINT
#include "group.cpp" // NOLINT
#include "host.cpp" // NOLINT
#include "mesh.cpp" // NOLINT
#include "module.cpp" // NOLINT
#include "peers.cpp" // NOLINT
#include "reduce.cpp" // NOLINT
#include "runner.cpp" // NOLINT
#include "small.cpp" // NOLINT
#include "timer.cpp" // NOLINT
#include "work.cpp" // NOLINT
