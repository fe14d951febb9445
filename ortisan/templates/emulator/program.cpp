// Reads programs: lines of words, as ortisan/emulator/program.py writes them.
#include "program.h"

#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <sstream>
#include <unordered_map>

#include "tables.h"

namespace ortisan::emulator {

namespace {

struct Variable {
  uint8_t* at;
  size_t bytes;
};

std::mutex guard;
std::map<std::string, std::unique_ptr<Kernel>> kernels;
std::map<std::string, Variable> variables;
std::deque<std::string> texts;  // of instructions; never moved

const char* keep(const std::string& text) {
  static std::unordered_map<std::string, const char*> known;
  const auto found = known.find(text);
  if (found != known.end()) return found->second;
  texts.push_back(text);
  return known.emplace(text, texts.back().c_str()).first->second;
}

class Reader {
 public:
  explicit Reader(const char* text) : in_(text) {}

  std::string read() {
    std::string line;
    while (error_.empty() && std::getline(in_, line)) {
      ++number_;
      std::istringstream words(line);
      std::string kind;
      if (!(words >> kind)) continue;
      if (kind == "i")
        instruction(words);
      else
        declaration(kind, words);
      if (error_.empty() && words.fail() && !words.eof()) fail("can't be read");
    }
    if (error_.empty()) finish();
    return error_;
  }

 private:
  void fail(const std::string& what) { error_ = "line " + std::to_string(number_) + " of the program " + what; }

  void declaration(const std::string& kind, std::istringstream& words) {
    if (kind == "variable") return variable(words);
    if (kind == "relocation") return relocation(words);
    if (kind == "kernel") {
      kernel_ = std::make_unique<Kernel>();
      words >> kernel_->name;
      return;
    }
    if (kernel_ == nullptr) return fail("is outside of a kernel");
    Kernel& k = *kernel_;
    if (kind == "parameters") {
      words >> k.parameter_bytes;
      for (uint32_t offset, bytes; words >> offset >> bytes;) k.parameters.emplace_back(offset, bytes);
    } else if (kind == "memory") {
      words >> k.file_bytes >> k.constant_bytes >> k.static_shared >> k.dynamic_shared_align >> k.local_bytes >>
          k.max_threads;
    } else if (kind == "jumps") {
      for (uint32_t jump; words >> jump;) k.jumps.push_back(jump), k.body += std::to_string(jump) + " ";
    } else if (kind == "special") {
      std::string name;
      uint32_t place;
      if (words >> name >> place) k.specials.emplace_back(name, place);
    } else if (kind == "constant") {
      constant(words);
    } else if (kind == "end") {
      done_.push_back(std::move(kernel_));
    } else {
      fail("begins with '" + kind + "'");
    }
  }

  void variable(std::istringstream& words) {
    std::string name, space, data;
    size_t align, bytes;
    if (!(words >> name >> space >> align >> bytes >> data)) return fail("is no variable");
    auto* at = static_cast<uint8_t*>(std::aligned_alloc(256, (bytes + 511) / 256 * 256));
    std::memset(at, 0, bytes);
    for (size_t k = 0; data != "-" && 2 * k + 1 < data.size() && k < bytes; ++k)
      at[k] = static_cast<uint8_t>(std::strtoul(data.substr(2 * k, 2).c_str(), nullptr, 16));
    mine_[name] = {at, bytes};
    add_extent(at, bytes, space != "const");
  }

  void relocation(std::istringstream& words) {
    std::string name, symbol;
    size_t offset;
    int64_t add;
    if (!(words >> name >> offset >> symbol >> add)) return fail("is no relocation");
    relocations_.push_back({name, offset, symbol, add});
  }

  void constant(std::istringstream& words) {
    Constant c = {};
    std::string value;
    if (!(words >> c.place >> c.bytes >> value)) return fail("is no constant");
    kernel_->body += value + " ";
    if (value[0] == '%') {
      c.special = keep(value);
    } else if (value[0] == '@') {
      const auto found = mine_.find(value.substr(1));
      if (found == mine_.end()) return fail("names the unknown variable " + value);
      c.value = reinterpret_cast<uint64_t>(found->second.at);
    } else {
      c.value = std::strtoull(value.c_str(), nullptr, 10);
    }
    kernel_->constants.push_back(c);
  }

  // i handler guard flags immediate target line use results sources text operands...
  void instruction(std::istringstream& words) {
    std::string handler, text;
    Instr i = {};
    uint32_t use = 0, results = 0, count = 0;
    if (kernel_ == nullptr || !(words >> handler >> i.guard >> i.flags >> i.immediate >> i.target >> i.line >> use >>
                                results >> count >> text))
      return fail("is no instruction");
    i.run = find_handler(handler);
    if (i.run == nullptr) return fail("names the unknown instruction '" + handler + "'");
    i.text = keep(text);
    i.use = static_cast<uint8_t>(use), i.results = static_cast<uint8_t>(results),
    i.sources = static_cast<uint8_t>(count);
    kernel_->body += handler + " " + std::to_string(i.guard) + " " + std::to_string(i.flags) + " " +
                     std::to_string(i.immediate) + " " + std::to_string(i.target);
    i.op = reinterpret_cast<const uint32_t*>(kernel_->operands.size());  // an index until all are known
    for (uint32_t place; words >> place;) {
      kernel_->operands.push_back(place);
      kernel_->body += " " + std::to_string(place);
    }
    kernel_->body += "\n";
    words.clear();
    words.seekg(0, std::ios::end);
    kernel_->code.push_back(i);
  }

  void finish() {
    for (const Relocation& r : relocations_) {
      const auto to = mine_.find(r.name), of = mine_.find(r.symbol);
      if (to == mine_.end() || of == mine_.end()) return fail("names an unknown variable in a relocation");
      const uint64_t address = reinterpret_cast<uint64_t>(of->second.at) + static_cast<uint64_t>(r.add);
      std::memcpy(to->second.at + r.offset, &address, sizeof address);
    }
    for (std::unique_ptr<Kernel>& kernel : done_) {
      for (Instr& i : kernel->code) i.op = kernel->operands.data() + reinterpret_cast<uintptr_t>(i.op);
      const auto found = kernels.find(kernel->name);
      if (found != kernels.end() && found->second->body != kernel->body) {
        error_ = "kernel " + kernel->name + " is another one than that of the same name in a program before";
        return;
      }
      if (found == kernels.end()) kernels[kernel->name] = std::move(kernel);
    }
    for (const auto& [name, variable] : mine_) variables[name] = variable;
  }

  struct Relocation {
    std::string name;
    size_t offset;
    std::string symbol;
    int64_t add;
  };

  std::istringstream in_;
  std::string error_;
  size_t number_ = 0;
  std::unique_ptr<Kernel> kernel_;
  std::vector<std::unique_ptr<Kernel>> done_;
  std::map<std::string, Variable> mine_;
  std::vector<Relocation> relocations_;
};

}  // namespace

Handler find_handler(const std::string& name) {
  static const std::unordered_map<std::string, Handler> all = [] {
    std::unordered_map<std::string, Handler> found;
    for (const Entry* table : {kControl, kInteger, kLogic, kMove, kFloat, kRounded, kCompare, kConvert, kHalf, kMemory,
                               kAtomic, kMatrix, kWarp, kApproximate})
      for (; table->name != nullptr; ++table) found.emplace(table->name, table->run);
    return found;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

std::string load_program(const char* text) {
  const std::lock_guard<std::mutex> lock(guard);
  return Reader(text).read();
}

void forget_kernels() {
  const std::lock_guard<std::mutex> lock(guard);
  kernels.clear();
}

const Kernel* find_kernel(const std::string& name) {
  const std::lock_guard<std::mutex> lock(guard);
  const auto found = kernels.find(name);
  return found == kernels.end() ? nullptr : found->second.get();
}

void* find_variable(const std::string& name, size_t* bytes) {
  const std::lock_guard<std::mutex> lock(guard);
  const auto found = variables.find(name);
  if (found == variables.end()) return nullptr;
  if (bytes != nullptr) *bytes = found->second.bytes;
  return found->second.at;
}

}  // namespace ortisan::emulator
