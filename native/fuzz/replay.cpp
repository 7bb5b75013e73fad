// Plays inputs through a fuzzer without libFuzzer: the kept corpus as an ordinary test, by any compiler.
//
// Each argument is a file: a corpus (*.hex: one input a line, in hexadecimal, '#' for remarks) or the bytes
// of one input, as libFuzzer leaves them when something broke.
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "input.hpp"

// Every finding of a sanitizer ends the process by SIGABRT too.
extern "C" const char* __asan_default_options() { return "abort_on_error=1"; }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }

namespace {

char playing[1024] = "no input";

extern "C" void say_which_input(int) {
  std::fprintf(stderr, "while playing %s\n", playing);
  std::signal(SIGABRT, SIG_DFL);
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool from_hex(const std::string& line, std::vector<std::uint8_t>& bytes) {
  bytes.clear();
  for (std::size_t at = 0; at < line.size(); at += 2) {
    const int high = digit(line[at]), low = at + 1 < line.size() ? digit(line[at + 1]) : -1;
    if (high < 0 || low < 0) return false;
    bytes.push_back(static_cast<std::uint8_t>(high << 4 | low));
  }
  return true;
}

// A block of its exact size, so that a read behind its end is seen.
void play(const std::vector<std::uint8_t>& bytes) {
  const std::vector<std::uint8_t> exact(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

// Plays every input of a corpus; returns how many, or -1 when a line is no input.
int play_corpus(const std::string& name) {
  std::ifstream file(name);
  std::string line;
  std::vector<std::uint8_t> bytes;
  int inputs = 0;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.starts_with('#')) continue;
    if (!from_hex(line, bytes)) {
      std::fprintf(stderr, "%s:%d: not an input in hexadecimal\n", name.c_str(), number);
      return -1;
    }
    std::snprintf(playing, sizeof playing, "%s:%d", name.c_str(), number);
    play(bytes);
    ++inputs;
  }
  return inputs;
}

}  // namespace

int main(int count, char** arguments) {
  std::signal(SIGABRT, say_which_input);
  int inputs = 0;
  for (int at = 1; at < count; ++at) {
    const std::string name = arguments[at];
    if (name.ends_with(".hex")) {
      const int played = play_corpus(name);
      if (played < 0) return 1;
      inputs += played;
      continue;
    }
    std::ifstream file(name, std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "%s: cannot be read\n", name.c_str());
      return 1;
    }
    std::snprintf(playing, sizeof playing, "%s", name.c_str());
    play({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    ++inputs;
  }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
