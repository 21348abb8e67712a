/* SPDX-License-Identifier: Apache-2.0
 *
 * Program that maps a file where a JVM has its counters, with nonsense in it that changes, as does its length.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int count, char **words)
{
	char path[4096];
	unsigned char *all;
	int file;
	snprintf(path, sizeof path, "%s/hsperfdata_root", count > 1 ? words[1] : ".");
	mkdir(path, 0755);
	snprintf(path + strlen(path), 32, "/%d", (int)getpid());
	file = open(path, O_RDWR | O_CREAT, 0600);
	ftruncate(file, 32768);
	all = mmap(0, 32768, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	for (int turn = 0;; turn++) {
		static const unsigned char head[8] = { 0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1 };
		for (int byte = 8; byte < 4096; byte++)
			if (rand() % 4 == 0)
				all[byte] = rand() % 8 ? rand() % 64 : rand();
		memcpy(all, head, 8);
		if (turn % 50 == 49)
			ftruncate(file, 4096 * (1 + rand() % 8));
		usleep(2000);
	}
}
