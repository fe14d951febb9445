// 128 bits of a piece of memory. Every step is a bijection of its lane, so one changed word always changes its lane,
// and two multiplications with a rotation between them keep changes of several words from undoing each other.
#pragma once

#include <cstdint>
#include <cstring>

namespace ortisan {

struct Digest {
  std::uint64_t word[2];
};

typedef std::uint64_t DigestLanes __attribute__((vector_size(64)));

constexpr std::uint64_t kDigestFirst = 0x9E3779B97F4A7C15u, kDigestSecond = 0xD6E8FEB86659FD93u;
constexpr int kDigestStreams = 4;
constexpr std::int64_t kDigestBlock = kDigestStreams * static_cast<std::int64_t>(sizeof(DigestLanes));

template <typename T>
inline T stir(T lane, T word) {
  lane = (lane ^ word) * kDigestFirst;
  lane = (lane >> 32) | (lane << 32);
  return lane * kDigestSecond;
}

struct DigestState {
  DigestLanes stream[kDigestStreams];

  void take(const unsigned char* block) {
    for (int s = 0; s < kDigestStreams; ++s) {
      DigestLanes words;
      std::memcpy(&words, block + s * sizeof(words), sizeof(words));
      stream[s] = stir(stream[s], words);
    }
  }
};

inline Digest digest_of(const unsigned char* place, std::int64_t bytes) {
  DigestState state{};
  std::int64_t at = 0;
  for (; at + kDigestBlock <= bytes; at += kDigestBlock) state.take(place + at);
  if (at < bytes) {
    unsigned char last[kDigestBlock] = {};
    std::memcpy(last, place + at, static_cast<std::size_t>(bytes - at));
    state.take(last);
  }
  const std::uint64_t size = static_cast<std::uint64_t>(bytes);
  Digest digest{{size, ~size}};
  for (int s = 0; s < kDigestStreams; ++s) {
    for (int lane = 0; lane < 8; ++lane) {
      digest.word[0] = stir(digest.word[0], static_cast<std::uint64_t>(state.stream[s][lane]));
      digest.word[1] = stir(digest.word[1] ^ digest.word[0], static_cast<std::uint64_t>(state.stream[s][lane]));
    }
  }
  return digest;
}

}  // namespace ortisan
