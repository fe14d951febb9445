// Handlers of one expression, for the types that an instruction has.
#pragma once

#include <type_traits>

#include "lanes.h"
#include "tables.h"

namespace ortisan::emulator {

template <class T>
using Wide =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;
template <class T>
using Unsigned = std::make_unsigned_t<T>;

#define UNARY(NAME, D, A, EXPRESSION)                                      \
  void NAME(Warp& w, const Instr& i) {                                     \
    map<D, A>(w, i, [&](A a) -> D { return static_cast<D>(EXPRESSION); }); \
  }
#define BINARY(NAME, D, A, B, EXPRESSION)                                          \
  void NAME(Warp& w, const Instr& i) {                                             \
    map<D, A, B>(w, i, [&](A a, B b) -> D { return static_cast<D>(EXPRESSION); }); \
  }
#define TERNARY(NAME, D, A, B, C, EXPRESSION)                                              \
  void NAME(Warp& w, const Instr& i) {                                                     \
    map<D, A, B, C>(w, i, [&](A a, B b, C c) -> D { return static_cast<D>(EXPRESSION); }); \
  }

#define BITS(NAME, F) \
  {NAME ".b16", F<uint16_t>}, {NAME ".b32", F<uint32_t>}, { NAME ".b64", F<uint64_t> }
#define SIGNED(NAME, F) \
  {NAME ".s16", F<int16_t>}, {NAME ".s32", F<int32_t>}, { NAME ".s64", F<int64_t> }
#define INTEGERS(NAME, F) \
  SIGNED(NAME, F), {NAME ".u16", F<uint16_t>}, {NAME ".u32", F<uint32_t>}, { NAME ".u64", F<uint64_t> }
#define SHORT(NAME, F) \
  {NAME ".s16", F<int16_t>}, {NAME ".s32", F<int32_t>}, {NAME ".u16", F<uint16_t>}, { NAME ".u32", F<uint32_t> }
#define LONG(NAME, F) \
  {NAME ".s32", F<int32_t>}, {NAME ".s64", F<int64_t>}, {NAME ".u32", F<uint32_t>}, { NAME ".u64", F<uint64_t> }
#define MIXED(NAME, F)                                                                                                \
  {NAME ".s32.s32", F<int8_t, int8_t>}, {NAME ".s32.u32", F<int8_t, uint8_t>}, {NAME ".u32.s32", F<uint8_t, int8_t>}, \
  {                                                                                                                   \
    NAME ".u32.u32", F<uint8_t, uint8_t>                                                                              \
  }

}  // namespace ortisan::emulator
