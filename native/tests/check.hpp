// A tiny assertion helper: CHECK says what was expected and where, counts, and the test's main returns
// check_result().
#pragma once
#include <cstdio>
#include <sstream>
#include <string>

namespace genie::test {

inline int checks = 0;
inline int failures = 0;

template <class T>
std::string shown(const T& value) {
  if constexpr (requires(std::ostringstream& out) { out << value; }) {
    std::ostringstream out;
    out << +value;
    return out.str();
  } else {
    return "?";
  }
}
inline std::string shown(const std::string& value) { return value; }
inline std::string shown(const char* value) { return value; }

// `context` is a seed or a case's name: whatever a reader needs to see the failure again.
inline void report(bool ok, const char* file, int line, const std::string& what, const std::string& context) {
  ++checks;
  if (ok) return;
  ++failures;
  std::fprintf(stderr, "%s:%d: %s%s%s\n", file, line, what.c_str(), context.empty() ? "" : " in ",
               context.c_str());
}

template <class A, class B>
void report_equal(const A& a, const B& b, const char* file, int line, const char* text,
                  const std::string& context) {
  const bool ok = a == b;
  report(ok, file, line, ok ? "" : std::string(text) + ": " + shown(a) + " != " + shown(b), context);
}

inline int check_result(const char* name) {
  std::printf("%s: %d checks, %d failures\n", name, checks, failures);
  return failures == 0 && checks > 0 ? 0 : 1;
}

}  // namespace genie::test

#define CHECK(condition) genie::test::report((condition), __FILE__, __LINE__, #condition, "")
#define CHECK_IN(condition, context) \
  genie::test::report((condition), __FILE__, __LINE__, #condition, (context))
#define CHECK_EQUAL(a, b) genie::test::report_equal((a), (b), __FILE__, __LINE__, #a " == " #b, "")
#define CHECK_EQUAL_IN(a, b, context) \
  genie::test::report_equal((a), (b), __FILE__, __LINE__, #a " == " #b, (context))
