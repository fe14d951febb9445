// The functions of templates/cpu/glue/huge_pages.h, for tests.
#include "driver.h"
#include "huge_pages.h"

EXPORT int copy_pays(int thin, size_t bytes, int huge_pages, uint64_t free_bytes) {
  return ortisan::copy_pays(thin != 0, bytes, {huge_pages != 0, free_bytes});
}
EXPORT uint64_t read_number(const char* path, const char* key) { return ortisan::read_number(path, key); }
EXPORT uint64_t left_of(uint64_t limit, uint64_t used) { return ortisan::left_of(limit, used); }
EXPORT int offers_huge_pages() { return ortisan::this_machine().huge_pages; }
EXPORT uint64_t free_bytes() { return ortisan::this_machine().free_bytes; }
EXPORT char* take_pages(size_t bytes) { return ortisan::take_pages(bytes); }
EXPORT void give_pages_back(char* start, size_t bytes) { ortisan::give_pages_back(start, bytes); }
