/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Integers, and arithmetic on them that neither overflows nor divides by zero. There is no floating
 * point, no signed division and no 128-bit type, since BPF has none of them. */
#pragma once

typedef __UINT8_TYPE__ u8;
typedef __UINT16_TYPE__ u16;
typedef __UINT32_TYPE__ u32;
typedef __UINT64_TYPE__ u64;
typedef __INT32_TYPE__ s32;

#define CC_INLINE static inline __attribute__((always_inline, unused))

/* A function that Linux verifies once and not wherever it is called: what else would multiply the ways through an algorithm. It
 * returns an integer, and looks whether its pointers are null. */
#ifdef __bpf__
#define CC_APART __attribute__((noinline)) int
#else
#define CC_APART static inline __attribute__((unused)) int
#endif

/* Hides from the compiler what it knows of a variable. Clang 14 turns some arithmetic into operations
 * that it cannot compile for BPF: of 128 bits, or on leading zeros. */
#define CC_OPAQUE(variable) __asm__ volatile("" : "+r"(variable))

#define U32_MOST 0xffffffffu
#define U64_MOST 0xffffffffffffffffull

#define USEC_PER_SEC 1000000u
#define NSEC_PER_USEC 1000u
#define NSEC_PER_MSEC 1000000u
#define NSEC_PER_SEC 1000000000u

CC_INLINE u32 min32(u32 a, u32 b)
{
	return a < b ? a : b;
}

CC_INLINE u32 max32(u32 a, u32 b)
{
	return a > b ? a : b;
}

CC_INLINE u64 min64(u64 a, u64 b)
{
	return a < b ? a : b;
}

CC_INLINE u64 max64(u64 a, u64 b)
{
	return a > b ? a : b;
}

/* The nearest 32-bit number. */
CC_INLINE u32 narrow(u64 value)
{
	return value > U32_MOST ? U32_MOST : (u32)value;
}

/* a + b, or the greatest number there is. */
CC_INLINE u64 add_sat(u64 a, u64 b)
{
	return a > U64_MOST - b ? U64_MOST : a + b;
}

CC_INLINE u32 add_sat32(u32 a, u32 b)
{
	return a > U32_MOST - b ? U32_MOST : a + b;
}

/* a - b, or 0. */
CC_INLINE u64 sub_sat(u64 a, u64 b)
{
	return a > b ? a - b : 0;
}

CC_INLINE u32 sub_sat32(u32 a, u32 b)
{
	return a > b ? a - b : 0;
}

/* Whether a * b fits. */
CC_INLINE int mul_fits(u64 a, u64 b)
{
	u64 most;

	if (!b)
		return 1;
	most = U64_MOST / b;
	CC_OPAQUE(most);
	return a <= most;
}

/* a * b, or the greatest number there is. */
CC_INLINE u64 mul_sat(u64 a, u64 b)
{
	return mul_fits(a, b) ? a * b : U64_MOST;
}

/* a / b; by zero, the greatest number there is. */
CC_INLINE u64 div_sat(u64 a, u64 b)
{
	return b ? a / b : U64_MOST;
}

/* The bits that `a` takes, 0 for 0: those below its highest one are set too, and then counted.
 * Without a branch, each of which BPF's verifier would follow. */
CC_INLINE u32 bits_in(u64 a)
{
	for (u32 shift = 1; shift < 64; shift *= 2)
		a |= a >> shift;
	CC_OPAQUE(a);
	a -= a >> 1 & 0x5555555555555555;
	a = (a & 0x3333333333333333) + (a >> 2 & 0x3333333333333333);
	a = (a + (a >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return (u32)(a * 0x0101010101010101 >> 56);
}

/* a * b / c. Exact if a * b fits in 64 bits, else within c / 2^28 and a part in 2^28; the greatest number
 * there is if the quotient does not fit, or c is zero. */
CC_INLINE u64 mul_div(u64 a, u64 b, u64 c)
{
	u64 whole, rest;
	u32 shift = 0;

	if (!c)
		return U64_MOST;
	if (mul_fits(a, b))
		return a * b / c;
	whole = mul_sat(a / c, b);
	rest = a % c;
	whole = add_sat(whole, mul_sat(rest, b / c));
	b %= c;
	/* Both factors are below c now. */
	if (c >> 32) {
		shift = bits_in(c) - 32;
		return add_sat(whole, mul_sat((rest >> shift) * (b >> shift) / (c >> shift),
					      1ull << shift));
	}
	return add_sat(whole, rest * b / c);
}

/* Whether the sequence number `a` is before `b` (RFC 9293, section 3.4): both wrap. */
CC_INLINE int before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

/* The greatest number whose cube is not above `a`: at most 2^21.4. By Newton's method from above,
 * starting less than twice too high: six steps are enough for any `a`, which a test shows. There is no
 * more branching than that, since BPF's verifier follows every branch. */
CC_INLINE u32 cube_root(u64 a)
{
	u64 root = 1ull << (bits_in(a) + 2) / 3;

	if (!a)
		return 0;
	for (int step = 0; step < 6; step++)
		root = min64(root, (2 * root + a / (root * root)) / 3);
	return (u32)root;
}
