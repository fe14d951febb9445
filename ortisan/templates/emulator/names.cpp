// Names of kernels for people.
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>

#include "program.h"

namespace ortisan::emulator {

namespace {

// The identifiers that follow each other from `at` on, each after its length; `at` moves behind them.
std::vector<std::string> identifiers(const std::string& name, size_t& at) {
  std::vector<std::string> found;
  while (at < name.size() && name[at] >= '0' && name[at] <= '9') {
    size_t length = 0;
    for (; at < name.size() && name[at] >= '0' && name[at] <= '9'; ++at)
      length = length * 10 + static_cast<size_t>(name[at] - '0');
    found.push_back(name.substr(std::min(at, name.size()), length));
    at += length;
  }
  return found;
}

// nvcc's names of kernels with many arguments are beyond the demangler: the function, and its template's first argument.
std::string read_head(const std::string& name) {
  size_t at = name.compare(0, 3, "_ZN") == 0 ? 3 : 2;
  std::string text;
  for (const std::string& each : identifiers(name, at)) text += (text.empty() ? "" : "::") + each;
  if (text.empty()) return name;
  if (name.compare(at, 2, "IN") != 0) return text;
  at += 2;
  if (name[at] == 'S') at = name.find('_', at) + 1;  // a scope that was named before
  const std::vector<std::string> argument = identifiers(name, at);
  return argument.empty() ? text : text + "<" + argument.back() + ">";
}

std::string demangle(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string found = status == 0 ? text : name;
  std::free(text);
  return status == 0 || name.compare(0, 2, "_Z") != 0 ? found : read_head(name);
}

// Up to the first of these characters. "(anonymous namespace)" has none.
std::string until(const std::string& text, const char* stops) {
  const std::string hidden = "(anonymous namespace)";
  std::string masked = text;
  for (size_t at; (at = masked.find(hidden)) != std::string::npos;)
    masked.replace(at, hidden.size(), std::string(hidden.size(), '_'));
  return text.substr(0, masked.find_first_of(stops));
}

}  // namespace

std::string short_name(const std::string& kernel) {
  std::string text = demangle(kernel);
  if (text.compare(0, 5, "void ") == 0) text.erase(0, 5);
  const std::string name = until(text, "<(");
  if (text[name.size()] != '<') return name;
  std::string argument = until(text.substr(name.size() + 1), "<,>");
  const size_t scope = argument.rfind("::");
  if (scope != std::string::npos) argument.erase(0, scope + 2);
  return name + "<" + argument + ">";
}

}  // namespace ortisan::emulator
