// SPDX-License-Identifier: GPL-2.0-only
/*
 * nanonap: keeps a lane without using it (Elfen, USENIX ATC'16, section 3.1 and figure 6).
 *
 * MONITOR and MWAIT put a lane to sleep and leave all of its core to the other lane. But only the
 * kernel may use them, and the kernel's idle task, which does, runs only where no other thread
 * wants to run. Here a thread that holds a lane sleeps as the idle task does, with preemption off,
 * so that no other thread gets the lane during the sleep.
 *
 * What is watched. In the paper it is a flag of the lane, set by the side that wants the sleeper
 * back: a patched kernel, or the instrumented partner. Here no side would set a flag: the kernel is
 * a stock kernel and the service is unchanged. But a word that says whether the service runs is in
 * memory already, and MONITOR watches physical lines, whatever virtual address a write uses. So the
 * caller names the word. The module looks its page up in the caller's memory and watches it at the
 * kernel's address. Any write, even by a kernel program, ends the nap, and costs the writer
 * nothing. A flag as in the paper is the special case of a word in shared memory.
 *
 * No lost wake-up. First MONITOR, then a read of the word, then MWAIT: a write before the read is
 * seen, and a write after it ends the MWAIT. Interrupts are off from the read until the instruction
 * before MWAIT; STI takes effect with the MWAIT, which a pending interrupt ends.
 *
 * No starvation. Interrupts end a nap, and preemption is on again before the call returns, so a
 * thread that was woken for this lane gets the lane as after any system call. A timer ends a nap
 * that has no other end. A napping thread is charged for its time as if it computed.
 *
 * No new information. The caller can read the word anyway, and learns from a nap what it would
 * learn from reading in a loop. No memory is mapped and no address is revealed.
 */
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/hrtimer.h>
#include <linux/irqflags.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include <asm/cpufeature.h>
#include <asm/mwait.h>
#include <asm/nospec-branch.h>

#include "nanonap.h"

/* Sleep state of MWAIT: the shallowest, C1, since the lane has to be back within a microsecond.
 * Even in C1 the hardware gives the core to the partner lane (section 3.2 of the Elfen paper,
 * ATC'16). */
#define HINT_C1 0

/* Handles the timer that ends a nap. The interrupt itself ends it; the handler has nothing to
 * do. */
static enum hrtimer_restart nanonap_over(struct hrtimer *timer)
{
	return HRTIMER_NORESTART;
}

static void nanonap_set_timer(struct hrtimer *timer, u32 longest_ns)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	hrtimer_setup_on_stack(timer, nanonap_over, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#else
	hrtimer_init_on_stack(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	timer->function = nanonap_over;
#endif
	hrtimer_start(timer, ns_to_ktime(longest_ns), HRTIMER_MODE_REL_PINNED_HARD);
}

static void nanonap_monitor(const u32 *word)
{
	if (boot_cpu_has_bug(X86_BUG_CLFLUSH_MONITOR)) {
		mb();
		clflush((void *)word);
		mb();
	}
	__monitor(word, 0, 0);
}

/* Clears CPU buffers before the lane sleeps: on some CPUs a sleeping lane leaves its part of
 * these buffers to its partner. The kernel's idle task clears them too. */
static void nanonap_clear_buffers(void)
{
#ifdef NANONAP_CLEARS_BUFFERS
	x86_idle_clear_cpu_buffers();
#endif
}

/* Sleeps until the word's cache line is written, an interrupt comes or the time is over, as in
 * figure 6 of the Elfen paper. */
static void nanonap_sleep(const u32 *word, u32 expected, u32 longest_ns)
{
	struct hrtimer timer;

	preempt_disable();
	local_irq_disable();
	/* The timer is set with interrupts off, since it must not expire before the nap begins. */
	nanonap_set_timer(&timer, longest_ns);
	nanonap_clear_buffers();
	nanonap_monitor(word);
	if (READ_ONCE(*word) == expected && !need_resched()) {
		/* Interrupts are on again after the next instruction (STI). */
		trace_hardirqs_on();
		__sti_mwait(HINT_C1, 0);
	} else {
		local_irq_enable();
	}
	hrtimer_cancel(&timer);
	destroy_hrtimer_on_stack(&timer);
	preempt_enable();
}

static bool nanonap_valid(const struct nanonap_nap *nap)
{
	return IS_ALIGNED(nap->word, sizeof(u32)) && nap->longest_ns > 0 &&
	       nap->longest_ns <= NANONAP_LONGEST_NS;
}

static long nanonap_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct nanonap_nap nap;
	struct page *page;
	int found;

	if (command != NANONAP_NAP)
		return -ENOTTY;
	if (copy_from_user(&nap, (void __user *)argument, sizeof(nap)))
		return -EFAULT;
	if (!nanonap_valid(&nap))
		return -EINVAL;
	/* The page is pinned: it may be unmapped during the nap, but its memory is not reused. */
	found = get_user_pages_fast(nap.word & PAGE_MASK, 1, 0, &page);
	if (found != 1)
		return found < 0 ? found : -EFAULT;
	nanonap_sleep(page_address(page) + offset_in_page(nap.word), nap.expected, nap.longest_ns);
	put_page(page);
	return 0;
}

static const struct file_operations nanonap_operations = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = nanonap_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.llseek = noop_llseek,
};

/* Device file for root only, like real-time priorities; an administrator may give access to
 * others. */
static struct miscdevice nanonap_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "nanonap",
	.fops = &nanonap_operations,
	.mode = 0600,
};

static int __init nanonap_init(void)
{
	if (!boot_cpu_has(X86_FEATURE_MWAIT)) {
		pr_err("nanonap: no MWAIT: this CPU has none, or its hypervisor or firmware hides it\n");
		return -ENODEV;
	}
	if (boot_cpu_has_bug(X86_BUG_MONITOR)) {
		pr_err("nanonap: writes do not end MWAIT on this CPU (a known fault of its kind)\n");
		return -ENODEV;
	}
	return misc_register(&nanonap_device);
}

static void __exit nanonap_exit(void)
{
	misc_deregister(&nanonap_device);
}

module_init(nanonap_init);
module_exit(nanonap_exit);

MODULE_DESCRIPTION("Keep a lane without using its core: MONITOR/MWAIT for lane holders");
MODULE_AUTHOR("The Sidelane authors");
MODULE_LICENSE("GPL");
