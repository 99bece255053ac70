// A test framework: tests that register themselves, and checks that say their line and go on.
//
// Of our own because none can be had as the rest is: PyPI has no doctest, Catch2 or GoogleTest, and
// Debian's packages of them need root, which the tests do not ask for.
#pragma once

#include <cstdio>
#include <utility>
#include <vector>

namespace check {

struct Test {
  const char* name;
  void (*run)();
};

// All tests of the program, in no order between files.
inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

// What has failed in the test that runs.
inline int& failures() {
  static int count = 0;
  return count;
}

// Registers a test before main.
class Registered {
 public:
  explicit Registered(const Test& test) {
    tests().push_back(test);
  }
};

inline void that(bool holds, const char* file, int line, const char* condition) {
  if (!holds) {
    ++failures();
    std::printf("%s:%d: not %s\n", file, line, condition);
  }
}

inline void at_most(const char* what, double found, double bound) {
  if (!(found <= bound)) {
    ++failures();
    std::printf("%s is %g, more than %g\n", what, found, bound);
  }
}

} // namespace check

#define TEST(name)                                           \
  void name();                                               \
  const check::Registered registered_##name({#name, &name}); \
  void name()

#define CHECK(condition) check::that((condition), __FILE__, __LINE__, #condition)

// The block throws an exception of this type.
#define CHECK_THROWS(Type, ...)                                \
  do {                                                         \
    bool thrown = false;                                       \
    try {                                                      \
      __VA_ARGS__;                                             \
    } catch (const Type&) {                                    \
      thrown = true;                                           \
    }                                                          \
    check::that(thrown, __FILE__, __LINE__, "thrown: " #Type); \
  } while (false)
