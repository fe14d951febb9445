// Digests of many pieces of memory, by several threads, which share the work in parts of a megabyte.

#include "digest.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace {

using ortisan::Digest;
using ortisan::digest_of;

constexpr std::int64_t kPart = std::int64_t{1} << 20, kBytesPerThread = std::int64_t{8} << 20;

struct Part {
  const unsigned char* place;
  std::int64_t bytes;
};

void digest_parts(const std::vector<Part>& parts, std::vector<Digest>& digests, int threads) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < parts.size(); i = next++) digests[i] = digest_of(parts[i].place, parts[i].bytes);
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) {
    try {
      others.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // fewer threads do the same
    }
  }
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace

// Writes two words for each piece; they do not depend on the number of threads.
extern "C" __attribute__((visibility("default"))) void ortisan_digest(const void* const* places,
                                                                      const std::int64_t* sizes, std::int64_t count,
                                                                      int threads, std::uint64_t* words) {
  std::vector<Part> parts;
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* place = static_cast<const unsigned char*>(places[i]);
    total += sizes[i];
    std::int64_t at = 0;
    do {
      parts.push_back({place + at, std::min(kPart, sizes[i] - at)});
      at += kPart;
    } while (at < sizes[i]);
  }
  std::vector<Digest> digests(parts.size());
  const std::int64_t useful = std::max<std::int64_t>(1, total / kBytesPerThread);
  digest_parts(parts, digests, static_cast<int>(std::min<std::int64_t>(threads, useful)));
  std::size_t part = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto own = static_cast<std::size_t>(std::max<std::int64_t>(1, (sizes[i] + kPart - 1) / kPart));
    const Digest whole = own == 1 ? digests[part]
                                  : digest_of(reinterpret_cast<const unsigned char*>(&digests[part]),
                                              static_cast<std::int64_t>(own * sizeof(Digest)));
    words[2 * i] = whole.word[0];
    words[2 * i + 1] = whole.word[1];
    part += own;
  }
}
