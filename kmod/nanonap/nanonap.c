// SPDX-License-Identifier: GPL-2.0-only
/*
 * nanonap: to keep a lane without using it (Elfen, USENIX ATC'16, section 3.1 and figure 6).
 *
 * MONITOR and MWAIT put a lane to sleep and leave all of its core to the other one, but only the
 * kernel may use them, and its idle task, which does, runs only where nobody else wants to. Here a
 * thread that holds a lane sleeps as the idle task does, with preemption off, so that nobody else
 * gets the lane meanwhile.
 *
 * What is watched. In the paper it is a flag of the lane, set by whoever wants the sleeper back: a
 * patched kernel, or the instrumented partner. Here nobody would set one: the kernel is a stock one
 * and the service untouched. But a word that says whether the service runs is in memory already,
 * and MONITOR watches physical lines whatever the address they are written through. So the caller
 * names the word. Its page is looked up in the caller's own memory and watched at the kernel's
 * address of it; a write by anyone, a kernel program included, ends the nap, and the writer pays
 * nothing for that. A flag as in the paper is the special case of a word in shared memory.
 *
 * No lost wake-up. MONITOR first, then a look at the word, then MWAIT: a write before the look is
 * seen, one after it ends the MWAIT. Interrupts are off from the look on until the very
 * instruction before MWAIT, which starts with the next one; one that is pending ends it.
 *
 * No starvation. Interrupts end a nap, and preemption is on again before the return, so that
 * whoever was woken for this lane gets it as from any system call, and a timer ends a nap that
 * nothing else does. A napping thread's time counts as if it computed.
 *
 * No new view of anything. The caller can read the word anyway, and learns from a nap what it
 * would from reading in a loop. No memory is mapped and no address told.
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

/* The shallowest sleep, C1: the lane has to be back within a microsecond. The hardware leaves the
 * core to the partner all the same (section 3.2). */
#define HINT_C1 0

/* The interrupt is what ends the nap; there is nothing left to do. */
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

/* Lanes of some CPUs share buffers with their partner anew when they fall asleep; what the kernel
 * does about that in its idle task it does here. */
static void nanonap_clear_buffers(void)
{
#ifdef NANONAP_CLEARS_BUFFERS
	x86_idle_clear_cpu_buffers();
#endif
}

/* Figure 6. */
static void nanonap_sleep(const u32 *word, u32 expected, u32 longest_ns)
{
	struct hrtimer timer;

	preempt_disable();
	local_irq_disable();
	/* With interrupts off, since the timer must not be over before the nap has begun. */
	nanonap_set_timer(&timer, longest_ns);
	nanonap_clear_buffers();
	nanonap_monitor(word);
	if (READ_ONCE(*word) == expected && !need_resched()) {
		/* Interrupts are on again with the instruction after this. */
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
	/* The page may be unmapped meanwhile, but not used for anything else. */
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

/* For root only, as real-time priorities are: an administrator may open it to more. */
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
