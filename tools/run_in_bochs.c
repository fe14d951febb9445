// The first process of the machine that run_in_bochs.py starts: it runs COMMAND, hands the output to the port that
// Bochs prints, and switches off.
#include <stdio.h>
#include <sys/io.h>
#include <sys/wait.h>
#include <unistd.h>
static void print(const char* text, long size, int port) { while (size-- > 0) outb(*text++, port); }
int main(void) {
  static char text[65536];
  char* const command[] = {COMMAND, NULL};
  int status = 0, ends[2], failed = pipe(ends);
  if (fork() == 0) {
    failed |= !freopen("/stdin", "r", stdin) || dup2(ends[1], 1) < 0 || close(ends[1]);
    return failed || execv(command[0], command);
  }
  failed |= close(ends[1]) || iopl(3);
  print("<output>", 8, 0xe9);
  for (long n; (n = read(ends[0], text, sizeof text)) > 0;) print(text, n, 0xe9);
  wait(&status);
  print(text, sprintf(text, "<exit %d>", failed || !WIFEXITED(status) ? 1 : WEXITSTATUS(status)), 0xe9);
  for (;;) print("Shutdown", 8, 0x8900);
}
