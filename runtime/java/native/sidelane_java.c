/* SPDX-License-Identifier: Apache-2.0
 *
 * The native methods of java.lang.SidelaneCheck, the class that the agent makes. They connect the
 * JVM with the gate library that is preloaded into this process.
 */
#include <dlfcn.h>
#include <jni.h>
#include <jvmti.h>
#include <stddef.h>
#include <stdint.h>

static const volatile uint32_t *check_word;
static void (*slow_path)(void);

/* Word that checks read while the JIT's profile is prepared: always 1. */
static const volatile uint32_t training_word = 1;

/* Promises, for a thread that starts, that this thread will check often. */
static void JNICALL on_thread_start(jvmtiEnv *jvmti, JNIEnv *env, jthread thread)
{
	(void)jvmti;
	(void)env;
	(void)thread;
	slow_path();
}

/* Returns the address of the word that checks read; 0 if this process has no gate. The thread
 * that starts the agent calls it once. */
JNIEXPORT jlong JNICALL Java_java_lang_SidelaneCheck_gateWord(JNIEnv *env, jclass check)
{
	uint32_t *(*address)(void);

	(void)env;
	(void)check;
	*(void **)&address = dlsym(RTLD_DEFAULT, "sidelane_check_address");
	*(void **)&slow_path = dlsym(RTLD_DEFAULT, "sidelane_gate_slow_path");
	if (address && slow_path)
		check_word = address();
	return (jlong)(uintptr_t)check_word;
}

JNIEXPORT jlong JNICALL Java_java_lang_SidelaneCheck_trainingWord(JNIEnv *env, jclass check)
{
	(void)env;
	(void)check;
	return (jlong)(uintptr_t)&training_word;
}

/*
 * Naps while the gate is closed. It is an ordinary native method, not a critical one: the thread is
 * "in native" while it naps, so a safepoint does not wait for it. If a safepoint begins during the
 * nap, the thread stops when it returns.
 */
JNIEXPORT void JNICALL Java_java_lang_SidelaneCheck_nap(JNIEnv *env, jclass check)
{
	(void)env;
	(void)check;
	if (check_word && *check_word)
		slow_path();
}

/*
 * Promises that this thread, and each thread that is started later, checks often. A thread that
 * already runs makes this promise at its first nap. Returns false if threads that are started later
 * also make the promise only at their first nap.
 */
JNIEXPORT jboolean JNICALL Java_java_lang_SidelaneCheck_promise(JNIEnv *env, jclass check)
{
	jvmtiEventCallbacks callbacks = { .ThreadStart = on_thread_start };
	jvmtiEnv *jvmti;
	JavaVM *vm;

	(void)check;
	slow_path();
	return (*env)->GetJavaVM(env, &vm) == JNI_OK
		&& (*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION_1_2) == JNI_OK
		&& (*jvmti)->SetEventCallbacks(jvmti, &callbacks, sizeof(callbacks)) == JVMTI_ERROR_NONE
		&& (*jvmti)->SetEventNotificationMode(jvmti, JVMTI_ENABLE, JVMTI_EVENT_THREAD_START, NULL)
			== JVMTI_ERROR_NONE;
}
