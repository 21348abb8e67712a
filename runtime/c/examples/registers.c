/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls functions whose arguments fill every register that a call may use, for SECONDS. Exits with
 * 1 if an argument arrives changed. Built with checks at each entry, it tests that a check that
 * naps preserves its caller's registers. Use -march=native for the widest vectors of the CPU.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

#define UNCHECKED __attribute__((noinline, no_instrument_function))
#define CHECKED __attribute__((noinline, noclone))

#ifdef __AVX512F__
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
typedef double vector __attribute__((vector_size(VECTOR_BYTES)));
#define LANES (VECTOR_BYTES / 8)

struct large {
	long fields[12];
};

CHECKED static long integers(long a, long b, long c, long d, long e, long f, long g, long h)
{
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}

CHECKED static double floats(double a, double b, double c, double d, double e, double f, double g, double h)
{
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}

CHECKED static vector vectors(vector a, vector b, vector c, vector d, vector e, vector f, vector g, vector h)
{
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}

/* Tests a variadic call: register AL has the number of vector registers. */
CHECKED static double variadic(int count, ...)
{
	va_list list;
	double sum = 0;

	va_start(list, count);
	for (int i = 0; i < count; i++)
		sum += va_arg(list, int) * va_arg(list, double);
	va_end(list);
	return sum;
}

/* Tests a call that returns a struct: register RDI has the address of the result. */
CHECKED static struct large by_value(long first)
{
	struct large made;

	for (int i = 0; i < 12; i++)
		made.fields[i] = first + i;
	return made;
}

/* Tests x87 registers, which hold the result of the previous call. */
CHECKED static long double extended(long double a, double b)
{
	return a * 3 + b;
}

UNCHECKED static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static volatile long one = 1;

UNCHECKED static vector filled(double value)
{
	vector made;

	for (int i = 0; i < LANES; i++)
		made[i] = value + i;
	return made;
}

UNCHECKED static int vectors_arrive(long n)
{
	vector sum = vectors(filled(n), filled(1), filled(2), filled(3), filled(4), filled(5), filled(6), filled(7));

	for (int i = 0; i < LANES; i++)
		if (sum[i] != (n + i) + 2. * (1 + i) + 3. * (2 + i) + 4. * (3 + i) + 5. * (4 + i) + 6. * (5 + i) +
				      7. * (6 + i) + 8. * (7 + i))
			return 0;
	return 1;
}

/* Tests a nested function of GNU C: register R10 has the frame of the enclosing function. */
UNCHECKED static int nested_arrives(long n)
{
	long kept = n + 5;
	CHECKED long inner(long add)
	{
		return kept + add;
	}
	long (*volatile call)(long) = inner;

	return call(one) == n + 6;
}

UNCHECKED static int all_arrive(long n)
{
	errno = 77;
	return integers(n, one, 2, 3, 4, 5, 6, 7) == n + 2 + 6 + 12 + 20 + 30 + 42 + 56 &&
	       floats(n, one, 2, 3, 4, 5, 6, 7) == n + 2. + 6 + 12 + 20 + 30 + 42 + 56 && vectors_arrive(n) &&
	       variadic(3, 1, 2.5, 2, 3.5, 3, 4.5) == 2.5 + 7 + 13.5 && by_value(n).fields[11] == n + 11 &&
	       extended(n, 0.5) == n * 3.0L + 0.5L && nested_arrives(n) && errno == 77;
}

UNCHECKED int main(int argc, char **argv)
{
	double end_s = now_s() + (argc > 1 ? atof(argv[1]) : 1);

	for (long n = 0; now_s() < end_s;)
		for (int i = 0; i < 256; i++, n = (n + 1) & 0xffff)
			if (!all_arrive(n))
				return 1;
	return 0;
}
