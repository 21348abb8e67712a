// SPDX-License-Identifier: Apache-2.0
package dev.sidelane.agent;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Tests of loops as javac compiles them: they give the same results with points, and have a check
 * or a tag in every turn.
 */
class ShapesTest {
    private static final int TURNS = 50;

    private static final Class<?> CHECKED = with(CountingCheck.transformer());
    private static final Class<?> TAGGED = with(CountingTag.transformer("tag=t"));
    private static final Class<?> TAGGED_EVERYWHERE = with(CountingTag.transformer("tag=t;every-method;exits"));

    private static Class<?> with(PointTransformer transformer) {
        try {
            return Loader.transformed(transformer, Shapes.class, Class.forName("dev.sidelane.agent.Shapes$Chain"))
                    .loadClass(Shapes.class.getName());
        } catch (ClassNotFoundException e) {
            throw new LinkageError("no Shapes", e);
        }
    }

    static Stream<String> shapes() {
        return Arrays.stream(Shapes.class.getMethods())
                .filter(m -> m.getDeclaringClass() == Shapes.class)
                .map(Method::getName);
    }

    private static Object run(Class<?> shapes, String shape) throws ReflectiveOperationException {
        CountingCheck.count = 0;
        CountingTag.SEEN.clear();
        return shapes.getMethod(shape, int.class).invoke(null, TURNS);
    }

    @ParameterizedTest
    @MethodSource("shapes")
    void sameResultAndACheckInEveryTurn(String shape) throws Exception {
        assertEquals(run(Shapes.class, shape), run(CHECKED, shape));
        assertTrue(CountingCheck.count >= TURNS - 1, "only " + CountingCheck.count + " checks");
    }

    /** Tags are at the same methods and loops as checks. */
    @ParameterizedTest
    @MethodSource("shapes")
    void sameResultAndATagInEveryTurn(String shape) throws Exception {
        run(CHECKED, shape);
        long checks = CountingCheck.count;
        assertEquals(run(Shapes.class, shape), run(TAGGED, shape));
        assertEquals(checks, CountingTag.SEEN.size());
    }

    @ParameterizedTest
    @MethodSource("shapes")
    void everyMethodSaysThatItBeginsAndEnds(String shape) throws Exception {
        assertEquals(run(Shapes.class, shape), run(TAGGED_EVERYWHERE, shape));
        String method = "dev.sidelane.agent.Shapes." + shape;
        assertEquals(method, CountingTag.SEEN.get(0));
        assertEquals(method, CountingTag.SEEN.get(CountingTag.SEEN.size() - 1));
    }

    @Test
    void aLoopIsNamedByTheLineOfItsHead() throws Exception {
        run(TAGGED, "nestedWithLabels");
        List<String> loops = CountingTag.SEEN.stream().distinct().sorted().collect(Collectors.toList());
        Pattern name = Pattern.compile("dev\\.sidelane\\.agent\\.Shapes\\.nestedWithLabels loop@line \\d+");
        assertTrue(loops.stream().allMatch(loop -> name.matcher(loop).matches()), loops.toString());
        assertEquals(2, lineOf(loops.get(1)) - lineOf(loops.get(0)), "a loop without a condition begins with its body");
    }

    private static int lineOf(String loop) {
        return Integer.parseInt(loop.substring(loop.lastIndexOf(' ') + 1));
    }

    /** A transformed class with two constructors keeps both. */
    @Test
    void methodsOfOneNameAreToldApart() throws Exception {
        run(TAGGED_EVERYWHERE, "constructorLoop");
        assertTrue(CountingTag.SEEN.contains("dev.sidelane.agent.Shapes.<init>(int)"), CountingTag.SEEN.toString());
        assertTrue(CountingTag.SEEN.contains("dev.sidelane.agent.Shapes.<init>(int,int)"));
    }
}
