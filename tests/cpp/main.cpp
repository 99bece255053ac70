// Lists the tests, or runs the one that is named.
#include <cstring>

#include "check.h"

int main(int count, char** names) {
  bool found = count == 1;
  for (const check::Test& test : check::tests()) {
    if (count == 1) {
      std::printf("%s\n", test.name);
    } else if (std::strcmp(names[1], test.name) == 0) {
      found = true;
      test.run();
    }
  }
  return found && check::failures() == 0 ? 0 : 1;
}
