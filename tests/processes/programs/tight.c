/* A relay that changes its process id and session many thousand times: no list of processes is ever true for it.
   usage: tight FILE SECONDS.  At most two of it live at once; it ends itself. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static void pulse(const char *path) {
  struct timespec now;
  char line[64];
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  if (file < 0) return;
  clock_gettime(CLOCK_MONOTONIC, &now);
  int length = snprintf(line, sizeof line, "%d %lld\n", getpid(), now.tv_sec * 1000000000LL + now.tv_nsec);
  if (write(file, line, length) < 0) _exit(1);
  close(file);
}

int main(int count, char **words) {
  if (count < 3) return 2;
  double end = seconds() + atof(words[2]), next = 0;
  while (seconds() < end) {
    if (seconds() >= next) {
      pulse(words[1]);
      next = seconds() + 0.04;
    }
    pid_t heir = fork();
    if (heir > 0) _exit(0);
    if (heir == 0) setsid();
    else usleep(500);
  }
  return 0;
}
