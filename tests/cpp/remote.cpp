// Calls functions of a shared library for another process: the tests' way into a library of another architecture.
//
//   remote LIBRARY     reads calls from standard input and answers each on standard output, until the input ends
//
//   call     name, wants_text, count, arguments      a text or a block is its size (int64) and its bytes
//   argument 'i' integer | 'f' bits of a float | 'b' offset, block: a pointer `offset` bytes into a copy of the block
//   answer   result (int64), text if wanted, then every block as the function left it
//
// Integers and floats are passed in registers of different kinds, so one signature with enough of both fits all functions.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct Block {
  std::vector<char> memory;
  char* begin;
  int64_t size;

  explicit Block(int64_t bytes) : memory(static_cast<size_t>(bytes) + 64), size(bytes) {
    begin = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  }
};

void write_bytes(const void* from, int64_t size) { std::fwrite(from, 1, static_cast<size_t>(size), stdout); }

bool read_bytes(void* to, int64_t size) {
  return std::fread(to, 1, static_cast<size_t>(size), stdin) == static_cast<size_t>(size);
}

int64_t read_integer() {
  int64_t value;
  if (!read_bytes(&value, sizeof value)) std::exit(0);
  return value;
}

void answer(void* library) {
  std::string name(static_cast<size_t>(read_integer()), ' ');
  if (!read_bytes(&name[0], static_cast<int64_t>(name.size()))) std::exit(1);
  const bool wants_text = read_integer() != 0;
  int64_t i[16] = {};
  double f[8] = {};
  size_t integers = 0, floats = 0;
  std::vector<Block> blocks;
  for (int64_t left = read_integer(); left > 0; --left) {
    const int64_t kind = read_integer(), value = read_integer();
    if (kind == 'f') {
      std::memcpy(&f[floats++], &value, sizeof value);
    } else if (kind == 'i') {
      i[integers++] = value;
    } else {
      blocks.emplace_back(read_integer());
      if (!read_bytes(blocks.back().begin, blocks.back().size)) std::exit(1);
      i[integers++] = reinterpret_cast<int64_t>(blocks.back().begin + value);
    }
  }
  using I = int64_t;
  using D = double;
  using Function = I (*)(I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, I, D, D, D, D, D, D, D, D);
  const auto function = reinterpret_cast<Function>(dlsym(library, name.c_str()));
  if (function == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  const I result = function(i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8], i[9], i[10], i[11], i[12], i[13],
                            i[14], i[15], f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]);
  write_bytes(&result, sizeof result);
  if (wants_text) {
    const char* text = reinterpret_cast<const char*>(result);
    const int64_t size = text == nullptr ? 0 : static_cast<int64_t>(std::strlen(text));
    write_bytes(&size, sizeof size);
    write_bytes(text, size);
  }
  for (const Block& block : blocks) write_bytes(block.begin, block.size);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : nullptr;
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: remote LIBRARY");
    return 1;
  }
  for (;;) answer(library);
}
